"""The application and its service by uvicorn, in one process or in several that share a port.

The application has the lists of `list_routes`, and the addresses that describe the server. A response takes about a
millisecond of processor time, so the event loop handles requests one by one; a pool of threads would cost more than it
gains.
"""

import functools
import json
import os
import socket
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from uvicorn.supervisors import Multiprocess

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender
from oneclass.tasks.serve import list_routes
from oneclass.tasks.serve.access import MULTIPROCESS, AccessControl, AccessRules, Metrics, Observer, open_access_log
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.serve.schemas import Health
from oneclass.tasks.stores.home import Home

MAX_CONNECTIONS = 500  # of a process, which may have 1,024 descriptors by default; a request beyond is answered by 503
KEEP_ALIVE_SECONDS = 10
SHUTDOWN_SECONDS = 10  # after which requests that have not arrived are given up
KEY_NEEDED = "Each request sends a key as `Authorization: Bearer KEY`."
NO_KEY_NEEDED = "It has no authentication: use it on this machine only, or start it with --api-key-file."
MAX_ERRORS = 10  # of a request that are explained
REPORT_PAGE = r"^((index|search|runs/[\w-]{1,100})\.html)?$"


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


def create_app(
    watcher: PublicationWatcher, home: Home, rules: AccessRules | None = None, access_log: IO[str] | None = None
) -> FastAPI:
    """Create the application; by default it answers everybody who asks under a name of the loopback."""
    rules, metrics = rules or AccessRules(), Metrics(watcher)
    app = FastAPI(
        title=f"Recommendations for {home.dataset}",
        description=KEY_NEEDED if rules.key_hashes else NO_KEY_NEEDED,
        version="1",
        redoc_url=None,
        lifespan=lambda _: watcher,
        exception_handlers={InputError: _explain_absent, RequestValidationError: _explain_invalid},
    )
    list_routes.add_routes(app, watcher, metrics)
    _add_probes(app, watcher, metrics)
    _add_report(app, home)
    app.add_middleware(AccessControl, rules=rules)
    app.add_middleware(Observer, metrics=metrics, access_log=access_log)  # the last is the outermost
    return app


async def _explain_absent(_: Request, error: Exception) -> Response:
    """Say that a user, an item or a list is not there."""
    return JSONResponse({"detail": str(error)}, 404)


async def _explain_invalid(_: Request, error: Any) -> Response:
    """Say what is wrong with a request, without the input that FastAPI repeats: NaN and lone surrogates are no JSON."""
    if isinstance(error.body, bytes):  # which FastAPI has not read as JSON
        return JSONResponse({"detail": "send the body as JSON, with `Content-Type: application/json`"}, 415)
    found = [{key: one[key] for key in ("type", "loc", "msg")} for one in error.errors()[:MAX_ERRORS]]
    return Response(json.dumps({"detail": found}), 422, media_type="application/json")


def _add_probes(app: FastAPI, watcher: PublicationWatcher, metrics: Metrics) -> None:
    """Add the addresses by which a machine sees how the server does."""

    @app.get("/health")
    async def health() -> Health:
        """The served publication, and its age."""
        shop = watcher.shop
        return Health(
            status="behind" if watcher.error else "stale" if _is_stale(shop) else "ok",
            dataset=shop.dataset,
            publication=shop.publication,
            published_at=shop.published_at,
            age_seconds=(datetime.now(UTC) - shop.published_at).total_seconds(),
            model=shop.model,
            score=shop.score,
            items=len(shop.items),
            users=len(shop.users),
            error=watcher.error,
        )

    @app.get("/live")
    async def live() -> dict[str, str]:
        """Whether the process answers; asked without a key and under any name."""
        return {"status": "live"}

    @app.get("/ready", responses={503: {"model": dict[str, str]}})
    async def ready(response: Response) -> dict[str, str]:
        """Whether a publication is served, not older than publish.max_age (503 if not); asked as `/live`."""
        shop = watcher.loaded
        status = "empty" if shop is None else "stale" if _is_stale(shop) else "ready"
        response.status_code = 200 if status == "ready" else 503
        return {"status": status}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Requests, latency, answers by fallback and the publication's age, for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _add_report(app: FastAPI, home: Home) -> None:
    """Add the pages of the report."""

    @app.get("/report/{page:path}", response_class=FileResponse)
    async def report(page: Annotated[str, PathParameter(pattern=REPORT_PAGE)]) -> Any:
        """The report of the last run, and the pages to which it links."""
        file = home.report / (page or "index.html")
        if not file.exists():
            raise InputError(f"{file}: does not exist; any run writes a report, and those of the last 30 are kept.")
        return file


def _is_stale(shop: Recommender) -> bool:
    return shop.max_age is not None and datetime.now(UTC) - shop.published_at > shop.max_age
