"""Which Prefect server a run uses: the configured one if it answers, else a temporary one."""

import contextlib
import logging
import urllib.error
import urllib.request
from collections.abc import Generator

from prefect.settings import PREFECT_API_URL, temporary_settings

from oneclass.flows.prefect_server import is_started, wait_until_ready
from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration import reconcile

logger = logging.getLogger(__name__)


TIMEOUT_SECONDS = 5.0


@contextlib.contextmanager
def ensure_server() -> Generator[None]:
    """Use the server that `PREFECT_API_URL` names or, if it does not answer, a temporary one."""
    if is_started():
        wait_until_ready()
        yield
        return
    if (why := _explain_unreachable()) is None:
        yield
        return
    logger.warning(
        "%s. The run goes on with a temporary server of its own; it will not be seen in the other's UI.", why
    )
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


def require_server() -> None:
    """Require a permanent server.

    Raises:
        InputError: `PREFECT_API_URL` is not set, or no server answers there.
    """
    if not PREFECT_API_URL.value():
        raise InputError(
            "PREFECT_API_URL: is not set. Start a server (prefect server start), then "
            "export PREFECT_API_URL=http://127.0.0.1:4200/api and run again."
        )
    if why := _explain_unreachable():
        raise InputError(f"{why}. Start the server (prefect server start), then run again.")


def is_reachable() -> bool:
    """Whether a server is configured and answers."""
    return bool(PREFECT_API_URL.value()) and _explain_unreachable() is None


def sync_run_states(earlier: dict[str, str]) -> None:
    """Sync the states of earlier runs to the configured server if it answers; otherwise the next night does."""
    if is_reachable():
        try:
            reconcile.sync_run_states(earlier)
        except Exception as error:  # noqa: BLE001  (a failing display must not end the command)
            logger.warning("how earlier runs ended cannot be shown in Prefect: %s", error)


def _explain_unreachable() -> str | None:
    """Return why the configured server seems unreachable; None if it answers or none is configured."""
    if not (address := PREFECT_API_URL.value()):
        return None
    try:
        urllib.request.urlopen(f"{address}/health", timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:  # it answers, even if it requires a password
        return None
    except (OSError, ValueError) as error:
        return f"PREFECT_API_URL = {address}: no Prefect server answers there ({error})"
    return None
