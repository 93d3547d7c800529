"""Run the HTTP server, with a limit of connections and of the time that one may wait."""

import asyncio
import logging
import resource
import socket
import ssl
import time
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from oneclass.tasks.errors import InputError

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # in which a connection must have sent the headers of its next request
MAX_CONNECTIONS = 1000
RESERVED_DESCRIPTORS = 256  # for files, and for connections that are accepted together and closed again
LOG_SECONDS = 60.0


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections above a limit, and those whose request does not arrive in time."""

    max_connections = MAX_CONNECTIONS
    _last_log = -LOG_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Register a connection, or close it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            if time.monotonic() - LimitedProtocol._last_log >= LOG_SECONDS:
                LimitedProtocol._last_log = time.monotonic()
                logger.warning("%d connections are open, the most allowed; others are closed", self.max_connections)
            transport.abort()
            return
        self._set_deadline()

    def handle_events(self) -> None:
        """Handle data; a request whose headers are complete has no deadline."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._clear_deadline()

    def on_response_complete(self) -> None:
        """Prepare for the connection's next request."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._clear_deadline()
        if not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def check_certificate(certificate: str | None, private_key: str | None) -> None:
    """Raise an `InputError` if the files of TLS cannot be used."""
    if certificate is None and private_key is not None:
        raise InputError("--private-key: needs --certificate FILE.")
    if certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, private_key)
        except OSError as error:  # ssl.SSLError among them
            raise InputError(f"--certificate {certificate}: cannot be used ({error}).") from error


def build_server(app: FastAPI, certificate: str | None = None, private_key: str | None = None) -> uvicorn.Server:
    """Build the server of an application; by TLS with a certificate. Its `run` takes the listening sockets."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY:
        LimitedProtocol.max_connections = max(1, min(MAX_CONNECTIONS, descriptors - RESERVED_DESCRIPTORS))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            backlog=RESERVED_DESCRIPTORS // 2,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
            log_level="warning",
            access_log=False,
        )
    )


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
