"""HTTP/1.1 connections with limits: of their number, and of the time and headers of a request."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools is optional
    HttpToolsProtocol = None

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # in which a connection must have sent its next request, with its body
MAX_CONNECTIONS = 1000
MAX_HEADER_BYTES = 65_536  # as h11 has it
LOG_SECONDS = 60.0
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
