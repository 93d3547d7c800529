"""Find, check and start the Prefect server of a run: the configured one, or a temporary one.

The temporary server starts while the run's modules load, and ends with the run. Prefect would start one only after
loading, import a server's modules into this process, and leave the server running if this process is killed.
"""

import atexit
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from pathlib import Path

from oneclass.tasks.errors import OneclassError

logger = logging.getLogger(__name__)

API_URL = "PREFECT_API_URL"
STOP_TIMEOUT_SECONDS = 5.0  # for the server to write its pending records
TIMEOUT_SECONDS = 5.0  # for a configured server to answer
_PROGRAM = """
import fcntl, gc, os, socket, sys, threading
gc.set_threshold(100_000)  # as the run does

def end_with_the_run():
    sys.stdin.buffer.read()
    os._exit(0)

threading.Thread(target=end_with_the_run, daemon=True).start()
import uvicorn
from prefect.server.api.server import create_app  # its plugins want no event loop at work yet
from prefect.settings import get_current_settings
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
    """Whether a profile or a file of this folder may name a server; Prefect then decides itself."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    files = filter(Path.is_file, (profiles, Path("prefect.toml"), Path("pyproject.toml"), Path(".env")))
    return any(re.search(rb"PREFECT_API_URL|\bapi\b", file.read_bytes()) for file in files)


@contextlib.contextmanager
def ensure_server() -> Generator[None]:
    """Use the temporary server, the configured one or, if it does not answer, one that Prefect starts.

    Raises:
        OneclassError: the temporary server has ended, or does not answer within the start-up timeout.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    if _servers:
        if why := explain_unreachable(float(os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"])):
            raise OneclassError(
                f"Prefect's temporary server did not start: {why} Its own words are above; is there room for its "
                "database in $PREFECT_HOME? With PREFECT_API_URL a run uses a server that is there."
            )
    elif PREFECT_API_URL.value() and (why := explain_unreachable()):
        logger.warning("%s The run goes on with a temporary server; it will not be seen in the other's UI.", why)
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            yield
        return
    yield


def explain_unreachable(timeout: float = TIMEOUT_SECONDS) -> str:
    """Return why the configured server cannot be used; empty if it answers within some seconds."""
    from prefect.settings import PREFECT_API_URL

    if not (address := PREFECT_API_URL.value()):
        return f"{API_URL}: is not set. A server on this machine has the address http://127.0.0.1:4200/api."
    try:
        urllib.request.urlopen(f"{address}/health", timeout=timeout).close()
    except urllib.error.HTTPError:  # it answers, even if it requires a password
        return ""
    except (OSError, ValueError) as error:
        return f"{API_URL} = {address}: no Prefect server answers there ({error})."
    return ""
