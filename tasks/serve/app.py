"""The endpoints `/recommend`, `/similar`, `/lists/NAME`, `/health`, `/report/` (the last run's report) and `/docs` (the
API for people).

A response takes about a millisecond of processor time, so the event loop handles requests one by one; a pool of threads
would cost more than it gains.
"""

import warnings
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse
from pydantic import BaseModel, Field

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, UnknownItems, text
from oneclass.tasks.recommend.item_lists import ListName
from oneclass.tasks.recommend.like_calibration import EXPLICIT_LIKE_MEANING, LIKE_MEANING
from oneclass.tasks.serve import description
from oneclass.tasks.serve.access import AccessControl, AccessRules
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import SeenChoice

MAX_ITEMS = 1000
KEY_NEEDED = "Each request sends a key as `Authorization: Bearer KEY`."
NO_KEY_NEEDED = "It has no authentication: use it on this machine only, or start it with --api-key-file."
Ids = list[str] | None
Count = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="how many items")]


class Item(BaseModel):
    """One recommended item."""

    item_id: str
    title: str | None
    score: float
    like_mean: float | None = Field(None, description=LIKE_MEANING)
    like_sd: float | None = Field(
        None,
        description="its posterior standard deviation; a Beta distribution with this mean and deviation has intervals",
    )
    because: list[str] = Field([], description="up to three likes that speak for the item, the strongest first")
    explicit_like_mean: float | None = Field(None, description=EXPLICIT_LIKE_MEANING)
    explicit_like_sd: float | None = Field(None, description="its posterior standard deviation")


class Answer(BaseModel):
    """Items, best first, and the publication that answered; `unknown` are the request's unknown items."""

    dataset: str
    publication: str
    model: str
    score: str
    unknown: list[str]
    items: list[Item]


class ListedItem(BaseModel):
    """One item of a list for everybody; `published.lists` says what value, users, expected_users and p_value are."""

    item_id: str
    title: str | None
    value: float
    users: int
    expected_users: float | None
    p_value: float | None


class ListAnswer(BaseModel):
    """A list for everybody, best first, and its publication."""

    dataset: str
    publication: str
    items: list[ListedItem]


class Health(BaseModel):
    """The served publication and its age.

    `status` is `ok`, `behind` if a newer one cannot be loaded, for which `error` has the reason, or `stale` if it is
    older than publish.max_age.
    """

    status: str
    dataset: str
    publication: str
    published_at: datetime
    age_seconds: float
    model: str
    score: str
    items: int
    users: int
    error: str | None
    trouble: str | None = Field(deprecated="use error")


def create_app(watcher: PublicationWatcher, home: Home, rules: AccessRules | None = None) -> FastAPI:
    """Create the application; by default it answers everybody who asks under a name of the loopback."""
    rules = rules or AccessRules()
    app = FastAPI(
        title=f"Recommendations for {home.dataset}",
        description=KEY_NEEDED if rules.key_hashes else NO_KEY_NEEDED,
        version="1",
        docs_url=None,  # FastAPI's pages load scripts from a public host
        redoc_url=None,
    )

    app.add_middleware(AccessControl, rules=rules)

    @app.exception_handler(InputError)
    async def _not_there(request: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=404)

    @app.get("/recommend", response_model=Answer)
    async def recommend(
        user: Annotated[str | None, Query(description="a user of the logs")] = None,
        item: Annotated[Ids, Query(description="a history instead of a user: liked items, the newest last")] = None,
        n: Annotated[int | None, Query(ge=1, le=MAX_ITEMS, description="how many items; by default 20")] = None,
        within: Annotated[Ids, Query(description="items to choose among; all by default")] = None,
        without: Annotated[Ids, Query(description="items to leave out")] = None,
        seen: Annotated[
            SeenChoice | None, Query(description="whether to include the items of the history; by default as published")
        ] = None,
        placement: Annotated[str | None, Query(description="a placement: its rules, and its number of items")] = None,
        where: Annotated[
            str | None, Query(description="a SQL condition on the columns that `request_filters` allows")
        ] = None,
    ) -> Any:
        """The best items for a user of the logs, or for any history, such as item=a&item=b."""
        if (user is None) == (not item):
            raise HTTPException(400, "give `user`, or `item` once for each item of a history")
        shop = watcher.shop
        try:
            shop.rules.check_request(placement, where, any_column=False)
        except InputError as error:
            raise HTTPException(400, str(error)) from error
        filters = {"within": within, "without": without, "seen": seen, "placement": placement, "where": where}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownItems)  # the answer lists them
            items = shop.recommend(item or (), n, **filters) if user is None else shop.recommend_for(user, n, **filters)
        return JSONResponse(text.build_answer(shop, items, shop.unknown([*(item or ()), *(within or ())])))

    @app.get("/similar", response_model=Answer, response_model_exclude_defaults=True)
    async def similar(item: Annotated[str, Query(description="an item of the logs")], n: Count = 20) -> Any:
        """The items most similar to one."""
        shop = watcher.shop
        return JSONResponse(text.build_answer(shop, shop.similar_items(item, n), []))

    @app.get("/lists/{name}", response_model=ListAnswer)
    async def lists(
        name: Annotated[ListName, Path(description="the list")],
        category: Annotated[str | None, Query(description="of the items' attributes; all items by default")] = None,
        window_days: Annotated[
            int | None, Query(description="one of publish.list_windows; by default the longest")
        ] = None,
        n: Count = 20,
    ) -> Any:
        """Popular, trending or new items, for everybody."""
        shop = watcher.shop
        items = shop.list_items(name, n, category=category, window_days=window_days)
        return JSONResponse(text.build_list_answer(shop, items))

    _add_pages(app, watcher, home)
    return app


def _add_pages(app: FastAPI, watcher: PublicationWatcher, home: Home) -> None:
    """Add the addresses that describe the server: its health, the report and the interface."""

    @app.get("/health", response_model=Health)
    async def health() -> Any:
        """The served publication, and its age."""
        return _describe_health(watcher.shop, watcher.error)

    @app.get("/report/", response_class=FileResponse)
    async def report() -> Any:
        """The report of the last run, a page."""
        page = home.report / "index.html"
        if not page.exists():
            raise InputError(f"{page}: does not exist; any run writes it.")
        return page

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def docs() -> str:
        return description.render_api_page(app.openapi(), watcher.shop)


def _describe_health(shop: Recommender, error: str | None) -> dict[str, Any]:
    """Return the fields of `Health`."""
    age = datetime.now(UTC) - shop.published_at
    is_stale = shop.max_age is not None and age > shop.max_age
    return {
        "status": "behind" if error else "stale" if is_stale else "ok",
        "dataset": shop.dataset,
        "publication": shop.publication,
        "published_at": shop.published_at,
        "age_seconds": age.total_seconds(),
        "model": shop.model,
        "score": shop.score,
        "items": len(shop.items),
        "users": len(shop.users),
        "error": error,
        "trouble": error,
    }
