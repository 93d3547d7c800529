"""The routes of lists: `/recommend`, `/similar`, `/popular`, `/trending` and `/new`.

A page is a part of a whole list, which is ranked anew for each page: so limits, pins and variety hold for the list, and
pages neither overlap nor leave anything out. A page's token names its publication, and no other answers it.
"""

import asyncio
import json
import re
import warnings
from importlib.metadata import version
from typing import Annotated, Any

import polars as pl
from fastapi import FastAPI, HTTPException, Path, Query, Request, Response

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, UnknownItems
from oneclass.tasks.recommend.ranking import ListName
from oneclass.tasks.serve import schemas
from oneclass.tasks.serve.access import Metrics
from oneclass.tasks.serve.reloader import PublicationWatcher

LISTS: dict[ListName, str] = {
    "popular": "Items that most users like in the window, for everybody.",
    "trending": "Items that more users came to like in the window than their past lets expect.",
    "new": "Items whose first event is in the window, the latest first.",
}
ItemListQuery = Annotated[schemas.ItemListQuery, Query()]
TOKEN = re.compile(r"(\d{1,6})\.(.+)", re.DOTALL)
VERSION = version("oneclass")


def add_routes(app: FastAPI, watcher: PublicationWatcher, metrics: Metrics) -> None:
    """Add the routes of lists to an application."""
    gone: dict[int | str, Any] = {410: {"description": "the page is of another publication; start again"}}

    @app.get("/recommend", response_model=schemas.Answer, responses=gone)
    async def recommend(request: Request, query: Annotated[schemas.RecommendQuery, Query()]) -> Any:
        """The best items for a user of the logs, or for any history, such as item=a&item=b."""
        shop = watcher.shop
        _check_known(request, shop)
        _check_options(shop, query)
        items, following, unknown = _rank_page(shop, query, query, metrics)
        return _respond(shop, {**_describe(shop), "unknown": unknown, "next": following}, items)

    @app.post("/recommend", response_model=schemas.BatchAnswer, responses=gone)
    async def recommend_batch(batch: schemas.RecommendBatch) -> Any:
        """Lists for many users and histories in one request, all of one publication."""
        shop = watcher.shop
        _check_options(shop, batch)
        _read_offset(shop, batch)  # once, so that a page of another publication is refused as a whole
        count = (batch.n or shop.rules.count_items(batch.placement)) * len(batch.queries)
        if count > schemas.MAX_BATCH_ITEMS:
            detail = f"queries: {len(batch.queries)} lists have {count:,} items, more than {schemas.MAX_BATCH_ITEMS:,}"
            raise HTTPException(422, f"{detail}; give fewer queries or a smaller n")
        answers, following = [], None
        for reader in batch.queries:
            items, unknown, error = pl.DataFrame(), [], None
            try:
                items, end, unknown = _rank_page(shop, reader, batch, metrics)
                following = following or end
            except InputError as wrong:  # of this query, such as an unknown user
                error = str(wrong)
            answers.append(_encode({"user": reader.user, "unknown": unknown, "error": error}, "items", items))
            await asyncio.sleep(0)  # lets other requests in between
        content = _encode({**_describe(shop), "next": following}, "answers", b"[%s]" % b", ".join(answers))
        return Response(content, media_type="application/json")

    @app.get("/similar", response_model=schemas.Answer, responses=gone)
    async def similar(request: Request, query: Annotated[schemas.SimilarQuery, Query()]) -> Any:
        """The items most similar to one."""
        shop = watcher.shop
        _check_known(request, shop)
        items, following = _cut_page(shop, shop.similar_items(query.item, query.n), query)
        return _respond(shop, {**_describe(shop), "unknown": [], "next": following}, items)

    @app.get("/lists/{name}", response_model=schemas.ListAnswer, responses=gone)
    async def answer_list(request: Request, name: Annotated[ListName, Path()], query: ItemListQuery) -> Any:
        """`/popular`, `/trending` or `/new`, under one address."""
        shop = watcher.shop
        _check_known(request, shop)
        items = shop.list_items(name, query.n, category=query.category, window_days=query.window_days)
        page, following = _cut_page(shop, items, query)
        return _respond(shop, {"dataset": shop.dataset, "publication": shop.publication, "next": following}, page)

    def add_list(name: ListName, description: str) -> None:
        @app.get(f"/{name}", response_model=schemas.ListAnswer, responses=gone, description=description)
        async def answer_one(request: Request, query: ItemListQuery) -> Any:
            return await answer_list(request, name, query)

    for name, description in LISTS.items():
        add_list(name, description)


def _rank_page(
    shop: Recommender, reader: schemas.Reader, options: schemas.ListOptions, metrics: Metrics
) -> tuple[pl.DataFrame, str | None, list[str]]:
    """Return a page of the list for a user or a history, the token of the next page, and the request's unknown items.

    Raises:
        InputError: no such user.
        HTTPException: as `_read_offset`.
    """
    filters = {name: getattr(options, name) for name in ("within", "without", "seen", "placement", "where")}
    history = reader.items or []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownItems)  # the answer lists them
        if reader.user is None:
            items = shop.recommend(history, options.n, **filters)
        else:
            items = shop.recommend_for(reader.user, options.n, **filters)
    page, following = _cut_page(shop, items, options)
    unknown = shop.unknown(history)
    source = "user" if reader.user is not None else "history" if len(unknown) < len(history) else "popular"
    metrics.answers.labels(source).inc()
    return page, following, unknown + shop.unknown(options.within or ())


def _check_options(shop: Recommender, options: schemas.ListOptions) -> None:
    """Raise `HTTPException` 400 for a placement or a filter that a request may not have."""
    try:
        shop.rules.check_request(options.placement, options.where, any_column=False)
    except InputError as error:
        raise HTTPException(400, str(error)) from error


def _read_offset(shop: Recommender, paging: schemas.Paging) -> int:
    """Return the position in the list at which the page begins.

    Raises:
        HTTPException: 400 for a token that no answer gave, 410 for one of another publication.
    """
    if paging.page is None:
        return 0
    if not (found := TOKEN.fullmatch(paging.page)):
        raise HTTPException(400, f"page {paging.page!r}: is not the `next` of an answer")
    if found[2] != shop.publication:
        raise HTTPException(410, f"page: is of publication {found[2]}, and {shop.publication} is served; start again")
    return int(found[1])


def _cut_page(shop: Recommender, items: pl.DataFrame, paging: schemas.Paging) -> tuple[pl.DataFrame, str | None]:
    """Return a page of a list, and the token of the next page, None for the last one."""
    offset = _read_offset(shop, paging)
    end = len(items) if paging.limit is None else offset + paging.limit
    return items.slice(offset, paging.limit), f"{end}.{shop.publication}" if end < len(items) else None


def _describe(shop: Recommender) -> dict[str, Any]:
    """Return the publication and the model that answer."""
    return {"dataset": shop.dataset, "publication": shop.publication, "model": shop.model, "score": shop.score}


def _encode(fields: dict[str, Any], name: str, values: pl.DataFrame | bytes) -> bytes:
    """Return a JSON object of fields and of one more, a frame or JSON; Polars is ten times as fast as Python."""
    values = values if isinstance(values, bytes) else values.write_json().encode()
    return b"%s, %s: %s}" % (json.dumps(fields).encode()[:-1], json.dumps(name).encode(), values)


def _respond(shop: Recommender, fields: dict[str, Any], items: pl.DataFrame) -> Response:
    """Return the answer that a client can keep until the next publication."""
    return Response(_encode(fields, "items", items), media_type="application/json", headers=_keeping(shop))


def _check_known(request: Request, shop: Recommender) -> None:
    """Raise `HTTPException` 304 if the client has the answer of this publication."""
    if known := request.headers.get("if-none-match"):
        tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        if tags & {"*", _keeping(shop)["etag"]}:
            raise HTTPException(304, headers=_keeping(shop))


def _keeping(shop: Recommender) -> dict[str, str]:
    """Return the headers by which a client keeps an answer: it depends on the publication, the URL and this version."""
    return {"etag": f'"{shop.publication}/{VERSION}"', "cache-control": "private, no-cache"}
