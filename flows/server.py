"""Prefect's server: whether the one that is named answers, so that a run need not wait for one that is away."""

import contextlib
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator

from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import temporary_server
from tasks.errors import InputError

logger = logging.getLogger(__name__)

SECONDS_TO_ANSWER = 5.0


@contextlib.contextmanager
def at_hand() -> Iterator[None]:
    """Work with the server that `PREFECT_API_URL` names, or, where that does not answer, with a temporary one."""
    if temporary_server.has_begun():
        temporary_server.wait()
        yield
        return
    if (why := _away()) is None:
        yield
        return
    logger.warning(
        "%s. The run goes on with a temporary server of its own; it will not be seen in the other's UI.", why
    )
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


def require() -> None:
    """Refuse to go on without a server that stays.

    Raises:
        InputError: `PREFECT_API_URL` is not set, or nothing answers there.
    """
    if not PREFECT_API_URL.value():
        raise InputError(
            "PREFECT_API_URL: is not set. Start a server (prefect server start), then "
            "export PREFECT_API_URL=http://127.0.0.1:4200/api and run again."
        )
    if why := _away():
        raise InputError(f"{why}. Start the server (prefect server start), then run again.")


def answers() -> bool:
    """Whether a server is named and answers."""
    return bool(PREFECT_API_URL.value()) and _away() is None


def _away() -> str | None:
    """Why the server that is named is taken to be away; None where it answers, or none is named."""
    if not (address := PREFECT_API_URL.value()):
        return None
    try:
        urllib.request.urlopen(f"{address}/health", timeout=SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:  # it answers, if only that it wants a password
        return None
    except (OSError, ValueError) as error:
        return f"PREFECT_API_URL = {address}: no Prefect server answers there ({error})"
    return None
