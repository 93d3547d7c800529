"""Run the HTTP server, in one process or in several that share its port.

Its connections have limits: of their number, and of the time and headers of a request.
"""

import asyncio
import functools
import logging
import os
import resource
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from oneclass.tasks.errors import InputError

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools is optional
    HttpToolsProtocol = None

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # in which a connection must have sent its next request, with its body
MAX_CONNECTIONS = 1000
RESERVED_DESCRIPTORS = 256  # for files, and for connections that are accepted together and closed again
MAX_HEADER_BYTES = 65_536  # as h11 has it
LOG_SECONDS = 60.0
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # by which prometheus_client adds up the figures of several processes
HEADERS_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ConnectionLimits:
    """Closes connections above a limit, and those whose request does not arrive in time. Mixed into a protocol."""

    max_connections = MAX_CONNECTIONS
    _last_log = -LOG_SECONDS

    if TYPE_CHECKING:  # of the protocol
        transport: asyncio.Transport
        connections: set[Any]
        loop: asyncio.AbstractEventLoop
        cycle: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Register a connection, or close it if there are too many."""
        super().connection_made(transport)  # pyright: ignore[reportAttributeAccessIssue]
        if len(self.connections) > ConnectionLimits.max_connections:
            if time.monotonic() - ConnectionLimits._last_log >= LOG_SECONDS:
                ConnectionLimits._last_log = time.monotonic()
                logger.warning("%d connections are open, the most allowed; others are closed", self.max_connections)
            transport.abort()
            return
        self._set_deadline()

    def on_response_complete(self) -> None:
        """Prepare for the connection's next request."""
        super().on_response_complete()  # pyright: ignore[reportAttributeAccessIssue]
        if self.cycle is None or self.cycle.response_complete:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_deadline()
        super().connection_lost(exc)  # pyright: ignore[reportAttributeAccessIssue]

    def _set_deadline(self) -> None:
        self._clear_deadline()
        if not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class LimitedH11(ConnectionLimits, H11Protocol):
    """Connections read by h11, in Python."""

    def handle_events(self) -> None:
        """Handle data; a whole request has no deadline."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._clear_deadline()


if HttpToolsProtocol is not None:

    class LimitedHttpTools(ConnectionLimits, HttpToolsProtocol):
        """Connections read by httptools, in C."""

        _header_bytes = 0  # received of a request whose headers are not complete
        _reads_headers = True

        def data_received(self, data: bytes) -> None:
            """Handle data, unless it is of headers without an end."""
            super().data_received(data)
            if self._reads_headers and not self.transport.is_closing():
                self._header_bytes += len(data)
                if self._header_bytes > MAX_HEADER_BYTES:
                    self.transport.write(HEADERS_TOO_LARGE)
                    self.transport.close()

        def on_headers_complete(self) -> None:
            """Begin the answer."""
            self._reads_headers = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            """End the request, after which there is no deadline."""
            super().on_message_complete()
            self._header_bytes, self._reads_headers = 0, True
            if not self.cycle.response_complete:
                self._clear_deadline()


def choose_protocol() -> type[ConnectionLimits]:
    """Return the protocol of new connections: httptools' if it is installed, which takes a third of h11's time."""
    return LimitedH11 if HttpToolsProtocol is None else LimitedHttpTools


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
        http=choose_protocol(),  # pyright: ignore[reportArgumentType]
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
        most = min(MAX_CONNECTIONS, descriptors - RESERVED_DESCRIPTORS)
        ConnectionLimits.max_connections = max(1, most)


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
