"""Errors that are the user's to mend, told apart by the exit status that they end a command with."""


class OneclassError(Exception):
    """A stage failed for a reason that a person can act on. The message says what, where and what to do."""

    exit_status = 1


class InputError(OneclassError):
    """Bad arguments, settings or input that cannot be read; nothing was written."""

    exit_status = 2
