"""Count and time requests for Prometheus, and log them as JSON lines."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from oneclass.tasks.errors import InputError
from oneclass.tasks.serve.reloader import PublicationWatcher

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
