"""Errors that the user can act on. Each class has the exit status of the command."""

import difflib
from collections.abc import Iterable


class OneclassError(Exception):
    """A failure that a person can fix. The message says what failed, where, and what to do."""

    exit_status = 1


class ModelsFailed(OneclassError):
    """Some models failed; everything else was published. The message names each."""


class NothingToPublish(OneclassError):
    """Nobody would get a recommendation."""


class InputError(OneclassError):
    """Bad arguments or settings, or unreadable input; nothing was written."""

    exit_status = 2


class ResourceExhausted(OneclassError):
    """The machine is out of memory or disk space."""


class ClusterUnavailable(OneclassError):
    """The connection to the cluster of a run was lost."""


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question after the known name that is most like an unknown one; empty if none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)  # `latest` is no slip of `lastfm`
    return f" Did you mean {close[0]}?" if close else ""
