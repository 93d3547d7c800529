"""Run uvicorn on a listening socket, in one process or in several."""

import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from oneclass.tasks.errors import InputError

MAX_CONNECTIONS = 500  # of a process, which may have 1,024 descriptors by default; a request beyond is answered by 503
KEEP_ALIVE_SECONDS = 10
SHUTDOWN_SECONDS = 10  # after which requests that have not arrived are given up
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # by which prometheus_client adds up the figures of several processes


def check_certificate(certificate: str | None, private_key: str | None) -> None:
    """Raise an `InputError` if the files of TLS cannot be used."""
    if certificate is None and private_key is not None:
        raise InputError("--private-key: needs --certificate FILE.")
    if certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, private_key)
        except OSError as error:  # ssl.SSLError among them
            raise InputError(f"--certificate {certificate}: cannot be used ({error}).") from error


def configure(app: Any, certificate: str | None = None, private_key: str | None = None, **more: Any) -> uvicorn.Config:
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
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
        **more,
    )


def run_workers(build_app: Callable[[], Any], server_socket: socket.socket, workers: int, *tls: str | None) -> None:
    """Run several processes on one socket until SIGTERM or SIGINT; one that dies is replaced.

    Args:
        build_app: called in each process; it is pickled.
        tls: certificate and private key.
    """
    with tempfile.TemporaryDirectory(prefix="oneclass-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder  # before a worker imports prometheus_client
        try:
            Multiprocess(configure(build_app, *tls, factory=True, workers=workers), sockets=[server_socket]).run()
        finally:
            del os.environ[MULTIPROCESS]


def open_socket(host: str, port: int) -> socket.socket:
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
