"""Errors that the user can act on; each kind has the exit status that the command ends with."""


class OneclassError(Exception):
    """A stage failed for a reason that a person can act on. The message says what, where and what to do."""

    exit_status = 1


class ModelsFailed(OneclassError):
    """Everything was done and published, but for some models that failed. The message names each."""


class InputError(OneclassError):
    """Bad arguments, settings or input that cannot be read; nothing was written."""

    exit_status = 2


class SettingsError(InputError):
    """A night's settings are wrong, those of whom to tell among them perhaps; `flows.deploy_flow` knows it by its name."""


class ResourceExhausted(OneclassError):
    """The machine gives no more memory, or no more room on the disk; nothing that the run was asked for is to blame."""


class ClusterUnavailable(OneclassError):
    """The cluster that did a run's work is gone."""


class SharedStoreUnavailable(OneclassError):
    """The URL by which workers share matrices and fits cannot be reached any more."""
