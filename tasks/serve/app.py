"""The application: the lists of `list_routes`, and the addresses that describe the server.

A response takes about a millisecond of processor time, so the event loop handles requests one by one; a pool of threads
would cost more than it gains.
"""

import contextlib
import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender
from oneclass.tasks.serve import description, list_routes, server
from oneclass.tasks.serve.access import AccessControl, AccessRules
from oneclass.tasks.serve.observer import Metrics, Observer, open_access_log
from oneclass.tasks.serve.reloader import NotLoaded, PublicationWatcher
from oneclass.tasks.serve.schemas import Health, Status
from oneclass.tasks.stores.home import Home

KEY_NEEDED = "Each request sends a key as `Authorization: Bearer KEY`."
NO_KEY_NEEDED = "It has no authentication: use it on this machine only, or start it with --api-key-file."
RETRY_SECONDS = 1


def create_app(
    watcher: PublicationWatcher, home: Home, rules: AccessRules | None = None, access_log: IO[str] | None = None
) -> FastAPI:
    """Create the application; by default it answers everybody who asks under a name of the loopback."""
    rules = rules or AccessRules()
    metrics = Metrics(watcher)
    app = FastAPI(
        title=f"Recommendations for {home.dataset}",
        description=KEY_NEEDED if rules.key_hashes else NO_KEY_NEEDED,
        version="1",
        docs_url=None,  # FastAPI's pages load scripts from a public host
        redoc_url=None,
    )

    @app.exception_handler(InputError)
    async def _not_there(request: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=404)

    @app.exception_handler(NotLoaded)
    async def _not_loaded(request: Request, error: NotLoaded) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503, headers={"retry-after": str(RETRY_SECONDS)})

    list_routes.add_routes(app, watcher, metrics)
    _add_probes(app, watcher, metrics)
    _add_pages(app, watcher, home)
    app.add_middleware(AccessControl, rules=rules)
    routes = frozenset(path for route in app.routes if (path := getattr(route, "path", None)) is not None)
    app.add_middleware(Observer, metrics=metrics, routes=routes, access_log=access_log)  # the last is the outermost
    return app


def _add_probes(app: FastAPI, watcher: PublicationWatcher, metrics: Metrics) -> None:
    """Add the addresses by which a machine sees how the server does."""

    @app.get("/health", response_model=Health)
    async def health() -> Any:
        """The served publication, and its age."""
        return _describe_health(watcher.shop, watcher.error)

    @app.get("/live", response_model=Status)
    async def live() -> Any:
        """Whether the process answers; asked without a key and under any name."""
        return {"status": "live"}

    @app.get("/ready", response_model=Status, responses={503: {"model": Status}})
    async def ready() -> Any:
        """Whether a publication is served, not older than publish.max_age (503 if not); asked as `/live`."""
        status = "empty" if watcher.is_empty else "stale" if _is_stale(watcher.shop) else "ready"
        return JSONResponse({"status": status}, status_code=200 if status == "ready" else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Requests, latency, answers by fallback and the publication's age, for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI, watcher: PublicationWatcher, home: Home) -> None:
    """Add the report and the description of the interface."""

    @app.get("/report/", response_class=FileResponse)
    async def report() -> Any:
        """The report of the last run, a page."""
        page = home.report / "index.html"
        if not page.exists():
            raise InputError(f"{page}: does not exist; any run writes it.")
        return page

    @app.get("/report/{name}.html", response_class=FileResponse, include_in_schema=False)
    async def page_beside_report(name: Literal["index", "search", "compare"]) -> Any:
        """The pages to which the report links."""
        page = home.report / f"{name}.html"
        if not page.exists():
            raise InputError(f"{page}: does not exist; any run writes it.")
        return page

    @app.get("/report/runs/{name}.html", response_class=FileResponse, include_in_schema=False)
    async def earlier_report(name: Annotated[str, PathParameter(pattern=r"^[\w-]+$")]) -> Any:
        """The report of an earlier run, to which that of the last links."""
        page = home.report / "runs" / f"{name}.html"
        if not page.exists():
            raise InputError(f"{page.name}: there is no report of that run; those of the last 30 are kept.")
        return page

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def docs() -> str:
        return description.render_api_page(app.openapi(), watcher.shop)


def _is_stale(shop: Recommender) -> bool:
    return shop.max_age is not None and datetime.now(UTC) - shop.published_at > shop.max_age


def _describe_health(shop: Recommender, error: str | None) -> dict[str, Any]:
    """Return the fields of `Health`."""
    return {
        "status": "behind" if error else "stale" if _is_stale(shop) else "ok",
        "dataset": shop.dataset,
        "publication": shop.publication,
        "published_at": shop.published_at,
        "age_seconds": (datetime.now(UTC) - shop.published_at).total_seconds(),
        "model": shop.model,
        "score": shop.score,
        "items": len(shop.items),
        "users": len(shop.users),
        "error": error,
    }


@dataclass(frozen=True)
class ServiceOptions:
    """How a data set is served.

    Attributes:
        host, port: the address to listen on; port 0 is any free one.
        rules: what a request must have.
        certificate, private_key: files of TLS in PEM.
        wait: whether to start before the first publication.
        workers: processes that answer on the port.
        access_log: as `observer.open_access_log`; None for none.
    """

    host: str
    port: int
    rules: AccessRules
    certificate: str | None = None
    private_key: str | None = None
    wait: bool = False
    workers: int = 1
    access_log: str | None = None


def run_service(root: Path, dataset: str, options: ServiceOptions) -> None:
    """Print the address, and answer until told to end.

    Raises:
        InputError: nothing is published, or a file, the address or the number of workers cannot be used.
    """
    if options.workers < 1:
        raise InputError(f"--workers {options.workers}: must be at least 1.")
    tls = options.certificate, options.private_key
    server.check_certificate(*tls)
    with contextlib.ExitStack() as stack:
        log = None if options.access_log is None else stack.enter_context(open_access_log(options.access_log))
        watcher = PublicationWatcher(root, dataset, wait=options.wait)
        server_socket = stack.enter_context(server.open_socket(options.host, options.port))
        scheme = "https" if options.certificate else "http"
        host = f"[{options.host}]" if ":" in options.host else options.host
        served = "nothing is published yet" if watcher.is_empty else f"publication {watcher.shop.publication}"
        address = f"{scheme}://{host}:{server_socket.getsockname()[1]}"
        print(f"{dataset}, {served}: {address}/docs; Ctrl-C ends it", flush=True)
        if options.workers > 1:
            del watcher  # each worker has its own
            server.run_workers(
                functools.partial(_start_app, root, dataset, options), server_socket, options.workers, *tls
            )
        else:
            stack.enter_context(watcher)
            app = create_app(watcher, Home(root, dataset), options.rules, log)
            server.build_server(app, *tls).run(sockets=[server_socket])


def _start_app(root: Path, dataset: str, options: ServiceOptions) -> FastAPI:
    """Load the publication in a worker, follow new ones while it lives, and create the application."""
    watcher = PublicationWatcher(root, dataset, wait=options.wait)
    watcher.start()
    log = None if options.access_log is None else open_access_log(options.access_log)
    return create_app(watcher, Home(root, dataset), options.rules, log)
