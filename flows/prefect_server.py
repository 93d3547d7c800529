"""Find, check and start the Prefect server of a run: the configured one, or a temporary one.

The temporary server starts while the run's modules load, and ends with the run. Prefect would start one only after
loading, import a server's modules into this process, and leave the server running if this process is killed.
"""

import atexit
import contextlib
import logging
import os
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from oneclass.tasks.errors import InputError, OneclassError

logger = logging.getLogger(__name__)

API_URL = "PREFECT_API_URL"
STOP_TIMEOUT_SECONDS = 5.0  # for the server to write its pending records
TIMEOUT_SECONDS = 5.0  # for a configured server to answer
_PROGRAM = """
import fcntl, gc, os, socket, sys, threading

gc.disable()  # as the command does, until the modules are loaded

def end_with_the_run():
    sys.stdin.buffer.read()
    os._exit(0)

threading.Thread(target=end_with_the_run, daemon=True).start()
import uvicorn
from prefect.server.api.server import create_app  # its plugins want no event loop at work yet
from prefect.settings import get_current_settings

gc.freeze()
gc.set_threshold(100_000)
gc.enable()

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        # migrates the database in $PREFECT_HOME, which two processes must not do at once
        home = get_current_settings().home
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "oneclass-start.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            await super().startup(sockets)

config = uvicorn.Config(create_app, factory=True, log_level="error", lifespan="on")
Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""
# As Prefect sets them for its own temporary servers, and without the log of the shutdown.
_SERVER_SETTINGS = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}
_servers: list[subprocess.Popen[bytes]] = []


def start_server() -> None:
    """Start a temporary server and set `PREFECT_API_URL`, unless Prefect's settings name one."""
    if "prefect" in sys.modules or os.environ.get(API_URL) or has_configured_server():
        return
    server, address = launch_server(os.environ)
    _servers.append(server)
    os.environ |= {API_URL: address, "PREFECT_UI_URL": ""}  # no dashboard to link to
    atexit.register(stop_server)  # registered before Prefect's handlers, so it runs after them


def launch_server(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Launch a server in the environment; returns its process, which ends with this one, and its API's address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:  # early clients wait in its queue
        server = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env={**environment, **_SERVER_SETTINGS},
            start_new_session=True,  # not in the run's process group, which may receive signals
        )
        return server, f"http://127.0.0.1:{listening.getsockname()[1]}/api"


def log_startup() -> None:
    """Log that a temporary server is starting: the first line of a run, seconds before the others."""
    if _servers:
        logger.info("Prefect's server for this run alone is starting; set %s to use a permanent one", API_URL)


def wait_until_ready() -> None:
    """Wait until the temporary server answers.

    Raises:
        OneclassError: it has ended, or does not answer within the start-up timeout.
    """
    seconds = float(os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"])
    try:
        urllib.request.urlopen(f"{os.environ[API_URL]}/health", timeout=seconds).close()
    except OSError as error:
        raise OneclassError(
            f"Prefect's temporary server did not start ({error}). Its own words are above; is there room for its "
            "database in $PREFECT_HOME? With PREFECT_API_URL a run uses a server that is there."
        ) from error


def stop_server(seconds: float = STOP_TIMEOUT_SECONDS) -> None:
    """Stop the temporary server, and kill it after the timeout."""
    for server in _servers:
        server.terminate()
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    _servers.clear()


def has_configured_server() -> bool:
    """Whether a profile or a file of this folder may configure a server; Prefect then decides itself."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = _read_toml(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    return (
        API_URL in profiles.get("profiles", {}).get(active, {})
        or "url" in _read_toml(Path("prefect.toml")).get("api", {})
        or "prefect" in _read_toml(Path("pyproject.toml")).get("tool", {})
        or Path(".env").exists()
    )


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # Prefect reports what is wrong
        return {}


@contextlib.contextmanager
def ensure_server() -> Generator[None]:
    """Use the temporary server, the configured one or, if it does not answer, one that Prefect starts."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if _servers:
        wait_until_ready()
    elif PREFECT_API_URL.value() and (why := explain_unreachable()):
        logger.warning("%s The run goes on with a temporary server; it will not be seen in the other's UI.", why)
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            yield
        return
    yield


def require_server() -> None:
    """Raise `InputError` if no permanent server is configured, or it does not answer."""
    if why := explain_unreachable():
        raise InputError(f"{why} Start it (prefect server start) and run again.")


def explain_unreachable() -> str:
    """Return why no permanent server can be used; empty if the configured one answers."""
    from prefect.settings import PREFECT_API_URL

    if not (address := PREFECT_API_URL.value()):
        return f"{API_URL}: is not set. A server on this machine has the address http://127.0.0.1:4200/api."
    try:
        urllib.request.urlopen(f"{address}/health", timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:  # it answers, even if it requires a password
        return ""
    except (OSError, ValueError) as error:
        return f"{API_URL} = {address}: no Prefect server answers there ({error})."
    return ""
