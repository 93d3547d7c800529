"""Prefect's server for one run alone, where none is named: it starts while the run's modules load, and ends with the run.

Prefect would start one too, but when all is loaded; it would load a server's modules into this process as well, and
leave the server at work where this process is killed.
"""

import atexit
import logging
import os
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

from tasks.errors import OneclassError

logger = logging.getLogger(__name__)

API_URL = "PREFECT_API_URL"
ALLOWED = "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"
SECONDS_TO_END = 5.0  # in which it writes down what it has been told
_PROGRAM = """
import gc, os, socket, sys, threading

gc.set_threshold(100_000)  # as the command's own

def end_with_the_run():
    sys.stdin.buffer.read()
    os._exit(0)

threading.Thread(target=end_with_the_run, daemon=True).start()
import uvicorn
from prefect.server.api.server import create_app  # its plugins want no event loop at work yet

config = uvicorn.Config(create_app, factory=True, log_level="error", lifespan="on")
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""
_OWN = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}  # as Prefect does
_started: list[subprocess.Popen] = []


def begin() -> None:
    """Start it, and name it to Prefect; nothing where a server is named, or where Prefect decides by settings of its own."""
    if "prefect" in sys.modules or os.environ.get(API_URL) or ALLOWED in os.environ or named_in_a_file():
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who asks too early waits
        command = [sys.executable, "-c", _PROGRAM, str(listening.fileno())]
        _started.append(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env=os.environ | _OWN,
                start_new_session=True,  # a signal to the run's group is for the run
            )
        )
        port = listening.getsockname()[1]
    os.environ |= {API_URL: f"http://127.0.0.1:{port}/api", "PREFECT_UI_URL": ""}  # it has no pages to link to
    atexit.register(end)  # before Prefect's own, so that it runs after them


def has_begun() -> bool:
    """Whether this process has one, which Prefect was told of."""
    return bool(_started)


def tell() -> None:
    """Say that one is starting, where one is: the first line of a run, seconds before its own."""
    if _started:
        logger.info("Prefect's server for this run alone is starting; %s would name one that stays", API_URL)


def wait() -> None:
    """Until it answers.

    Raises:
        OneclassError: it has ended, or says nothing for as long as a server may take to start.
    """
    seconds = float(os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"])
    try:
        urllib.request.urlopen(f"{os.environ[API_URL]}/health", timeout=seconds).close()
    except OSError as error:
        raise OneclassError(
            f"Prefect's temporary server did not start ({error}). Its own words are above; is there room for its database "
            "in $PREFECT_HOME? With PREFECT_API_URL a run uses a server that is there."
        ) from error


def end(seconds: float = SECONDS_TO_END) -> None:
    """End it; at once if it takes longer."""
    for server in _started:
        server.terminate()
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    _started.clear()


def named_in_a_file() -> bool:
    """Whether Prefect may find a server's address in a profile or in a file of this folder: it is left to Prefect then."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = _read(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    return (
        API_URL in profiles.get("profiles", {}).get(active, {})
        or "url" in _read(Path("prefect.toml")).get("api", {})
        or "prefect" in _read(Path("pyproject.toml")).get("tool", {})
        or Path(".env").exists()
    )


def _read(file: Path) -> dict:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # Prefect says what is wrong with it
        return {}
