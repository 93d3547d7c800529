"""Run the service by uvicorn, in one process or in several that share a port."""

import functools
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from oneclass.tasks.errors import InputError
from oneclass.tasks.serve.access import MULTIPROCESS, AccessRules, open_access_log
from oneclass.tasks.serve.app import create_app
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.stores.home import Home

MAX_CONNECTIONS = 500  # of a process, which may have 1,024 descriptors by default; a request beyond is answered by 503
KEEP_ALIVE_SECONDS = 10
SHUTDOWN_SECONDS = 10  # after which requests that have not arrived are given up


def run_service(
    root: Path, dataset: str, rules: AccessRules, host: str, port: int, workers: int, access_log: str | None
) -> None:
    """Print the address, and answer until told to end; the arguments are those of `flows.serve`.

    Raises:
        InputError: the address or the access log cannot be used.
    """
    watcher = PublicationWatcher(root, dataset)
    app = create_app(watcher, Home(root, dataset), rules, open_access_log(access_log))
    with _open_socket(host, port) as server_socket:
        served = f"publication {watcher.loaded.publication}" if watcher.loaded else "nothing is published yet"
        name = f"[{host}]" if ":" in host else host
        print(f"{dataset}, {served}: http://{name}:{server_socket.getsockname()[1]}/docs; Ctrl-C ends it", flush=True)
        if workers == 1:
            uvicorn.Server(configure(app)).run(sockets=[server_socket])
            return
        del app, watcher  # each worker has its own
        with tempfile.TemporaryDirectory(prefix="oneclass-metrics-") as folder:
            os.environ[MULTIPROCESS] = folder  # before a worker imports prometheus_client
            build = functools.partial(build_app, root, dataset, rules, access_log)
            Multiprocess(configure(build, factory=True, workers=workers), sockets=[server_socket]).run()


def build_app(root: Path, dataset: str, rules: AccessRules, access_log: str | None) -> FastAPI:
    """Create the application of a worker, with a watcher of its own."""
    watcher = PublicationWatcher(root, dataset)
    return create_app(watcher, Home(root, dataset), rules, open_access_log(access_log))


def configure(app: Any, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for an application; it takes uvloop and httptools if they are installed."""
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        **options,
    )


def _open_socket(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        InputError: it cannot be listened on.
    """
    try:
        server_socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {host} --port {port}: cannot be listened on ({error}). Choose another.") from error
    # As asyncio does for its own sockets; without it a response waits for 40 ms.
    server_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server_socket
