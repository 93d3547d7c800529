"""Run the HTTP server, in one process or in several that share its port."""

import functools
import os
import resource
import socket
import ssl
import tempfile
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from oneclass.tasks.errors import InputError
from oneclass.tasks.serve import connections

RESERVED_DESCRIPTORS = 256  # for files, and for connections that are accepted together and closed again
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


def build_config(
    app: Any, certificate: str | None = None, private_key: str | None = None, **more: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application, with uvloop and httptools if they are installed."""
    return uvicorn.Config(
        app,
        http=connections.choose_protocol(),  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="off",
        backlog=RESERVED_DESCRIPTORS // 2,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
        log_level="warning",
        access_log=False,
        **more,
    )


def limit_connections() -> None:
    """Lower this process's limit of connections to what its file descriptors allow."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY:
        most = min(connections.MAX_CONNECTIONS, descriptors - RESERVED_DESCRIPTORS)
        connections.ConnectionLimits.max_connections = max(1, most)


def build_server(app: Any, certificate: str | None = None, private_key: str | None = None) -> uvicorn.Server:
    """Build the server of an application; by TLS with a certificate. Its `run` takes the listening sockets."""
    limit_connections()
    return uvicorn.Server(build_config(app, certificate, private_key))


def run_workers(
    build_app: Callable[[], Any],
    server_socket: socket.socket,
    workers: int,
    certificate: str | None = None,
    private_key: str | None = None,
) -> None:
    """Run several processes on one socket until SIGTERM or SIGINT; one that dies is replaced.

    Args:
        build_app: called in each process; it is pickled.
    """
    with tempfile.TemporaryDirectory(prefix="oneclass-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder  # before a worker imports prometheus_client
        try:
            limited = functools.partial(_build_limited, build_app)
            config = build_config(limited, certificate, private_key, factory=True, workers=workers)
            Multiprocess(config, sockets=[server_socket]).run()
        finally:
            del os.environ[MULTIPROCESS]


def _build_limited(build_app: Callable[[], Any]) -> Any:
    """Build the application of a worker, and limit its connections."""
    limit_connections()
    return build_app()


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
