"""Middleware: check the `Host` header, the API key and the length of requests; count, time and log them."""

import contextlib
import hashlib
import hmac
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from oneclass.tasks.errors import InputError
from oneclass.tasks.serve.reloader import PublicationWatcher

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PROBES = ("/live", "/ready")  # asked by machines that know neither name nor key, and told one word
MAX_BODY_BYTES = 2_000_000
HASH = re.compile(r"[0-9a-f]{64}(\s|$)")


@dataclass(frozen=True)
class AccessRules:
    """What a request must have to be answered.

    Attributes:
        hosts: the names that its `Host` header may have, against pages that resolve a name of theirs to this server.
        key_hashes: SHA-256 of the keys, one of which it must send as `Authorization: Bearer KEY`; none for everybody.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    key_hashes: tuple[bytes, ...] = ()


def load_key_hashes(file: str | Path) -> tuple[bytes, ...]:
    """Read the SHA-256 hashes of the keys, one per line in hexadecimal; what follows a hash is a note.

    Raises:
        InputError: the file cannot be read, has no hash, or has another line.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--api-key-file {file}: cannot be read ({error}).") from error
    keys = {number: line for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")}
    for number in (number for number, line in keys.items() if not HASH.match(line)):
        where = f"--api-key-file {file}, line {number}"
        raise InputError(
            f"{where}: does not begin with a SHA-256 in 64 hexadecimal digits, such as `sha256sum` prints."
        )
    if not keys:
        raise InputError(f"--api-key-file {file}: has no key, so nobody could ask.")
    return tuple(line[:64].encode() for line in keys.values())


class AccessControl:
    """ASGI middleware that refuses requests which break the rules."""

    def __init__(self, app: Any, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["path"] not in PROBES:
            if (refusal := self._refuse(dict(scope["headers"]))) is not None:
                await refusal(scope, receive, send)
                return
            receive = _limit_body(receive)
        await self._app(scope, receive, send)

    def _refuse(self, headers: dict[bytes, bytes]) -> JSONResponse | None:
        """Return the answer to a request without a name of this server or without a key."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name not in self._rules.hosts:
            detail = f"the Host header {name!r} is not a name of this server; see --host-names"
            return JSONResponse({"detail": detail}, 421)
        if self._rules.key_hashes and not _has_key(headers.get(b"authorization", b""), self._rules.key_hashes):
            detail = "send a key as `Authorization: Bearer KEY`"
            return JSONResponse({"detail": detail}, 401, headers={"www-authenticate": "Bearer"})
        return None


def _limit_body(receive: Any) -> Any:
    """Return `receive` that raises `HTTPException` 413 once too much of a body has come, whatever the headers say."""
    received = 0

    async def receive_limited() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES:,} bytes; send fewer queries in each")
        return message

    return receive_limited


def _has_key(authorization: bytes, key_hashes: Iterable[bytes]) -> bool:
    """Compare a key with all hashes, in a time that does not depend on the key."""
    scheme, _, key = authorization.partition(b" ")
    digest = hashlib.sha256(key.strip()).hexdigest().encode()
    matches = [hmac.compare_digest(digest, stored) for stored in key_hashes]
    return scheme.lower() == b"bearer" and any(matches)


MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # by which prometheus_client adds up the figures of several processes
BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
METHODS = frozenset({"GET", "HEAD", "POST"})
OTHER = "other"  # an address or a method that the server does not have; clients could send any number of them

disable_created_metrics()


class Metrics(Collector):
    """The metrics of a server; of all its processes, if it has several."""

    def __init__(self, watcher: PublicationWatcher) -> None:
        self._watcher, self._registry = watcher, CollectorRegistry()
        self.requests = Counter(
            "oneclass_requests", "HTTP requests.", ["route", "method", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "oneclass_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            ["route"],
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.answers = Counter(
            "oneclass_answers",
            "Lists by what made them: a user's parameters, a history, or the popular items as fallback.",
            ["source"],
            registry=self._registry,
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the age of the publication that this process serves, absent without one."""
        if (shop := self._watcher.loaded) is not None:
            age = (datetime.now(UTC) - shop.published_at).total_seconds()
            yield GaugeMetricFamily("oneclass_publication_age_seconds", "Age of the served publication.", age)

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        if MULTIPROCESS in os.environ:
            MultiProcessCollector(registry)
            return generate_latest(registry)
        return generate_latest(self._registry) + generate_latest(registry)


def open_access_log(file: str | None) -> IO[str] | None:
    """Open the file of the access log for appending; `-` is standard output, and None is no log.

    Raises:
        InputError: it cannot be written.
    """
    try:
        return None if file is None else sys.stdout if file == "-" else open(file, "a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--access-log {file}: cannot be written ({error}).") from error


class Observer:
    """ASGI middleware that counts, times and logs requests, and answers HEAD as GET.

    The log has no query, because that names users.
    """

    def __init__(self, app: Any, metrics: Metrics, access_log: IO[str] | None) -> None:
        self._app, self._metrics, self._log = app, metrics, access_log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, sent = time.perf_counter(), 500, 0
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # uvicorn sends no body to it

        async def send_observed(message: Any) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(asked, receive, send_observed)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(asked.get("route"), "path", OTHER)
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            if self._log is not None:
                time_now, client = datetime.now(UTC).isoformat(timespec="milliseconds"), scope.get("client")
                line = {"time": time_now, "client": client and client[0], "method": scope["method"]}
                line |= {"path": scope["path"], "status": status, "bytes": sent, "seconds": round(seconds, 6)}
                with contextlib.suppress(OSError):  # a full disk stops no answer
                    print(json.dumps(line), file=self._log, flush=True)
