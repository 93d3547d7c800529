"""The routes of lists: `/recommend`, `/similar`, `/popular`, `/trending` and `/new`."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

from fastapi import FastAPI, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender
from oneclass.tasks.recommend.ranking import ListName
from oneclass.tasks.serve import answers, schemas
from oneclass.tasks.serve.observer import Metrics
from oneclass.tasks.serve.reloader import PublicationWatcher

Query = TypeVar("Query", bound=BaseModel)


class QueryReader(Generic[Query]):
    """Reads the query strings of one model, whose lists are given by repeating a name.

    Attributes:
        openapi: the description of the parameters, for `openapi_extra` of a route.
    """

    def __init__(self, kind: type[Query]) -> None:
        self._kind = kind
        self._lists = frozenset(name for name, field in kind.model_fields.items() if _takes_list(field.annotation))
        schema = kind.model_json_schema()
        required = schema.get("required", ())
        self.openapi: dict[str, Any] = {
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "required": name in required,
                    "description": field.pop("description", ""),
                    "schema": field,
                }
                for name, field in schema["properties"].items()
            ]
        }

    def read(self, request: Request) -> Query:
        """Return the query of a request; names that the model lacks are ignored.

        Raises:
            RequestValidationError: a value is wrong, or a required one is missing; answered by 422.
        """
        given: dict[str, Any] = {}
        for name, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True):
            if name in self._lists:
                given.setdefault(name, []).append(value)
            else:
                given[name] = value
        try:
            return self._kind.model_validate(given)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in errors]) from error


def _takes_list(annotation: Any) -> bool:
    """Whether a field is a list, or a list or None."""
    return get_origin(annotation) is list or any(_takes_list(part) for part in get_args(annotation))


Handler = TypeVar("Handler", bound=Callable[..., Any])

RECOMMEND = QueryReader(schemas.RecommendQuery)
SIMILAR = QueryReader(schemas.SimilarQuery)
ITEM_LIST = QueryReader(schemas.ItemListQuery)
GONE: dict[int | str, dict[str, Any]] = {410: {"description": "the page is of another publication; start again"}}


def add_routes(app: FastAPI, watcher: PublicationWatcher, metrics: Metrics) -> None:
    """Add the routes of lists to an application."""

    @app.get("/recommend", response_model=schemas.Answer, responses=GONE, openapi_extra=RECOMMEND.openapi)
    async def recommend(request: Request) -> Any:
        """The best items for a user of the logs, or for any history, such as item=a&item=b."""
        query = RECOMMEND.read(request)
        if (query.user is None) == (not query.item):
            raise HTTPException(400, "give `user`, or `item` once for each item of a history")
        shop = watcher.shop
        if (known := answers.not_modified(request, shop)) is not None:
            return known
        answers.check_options(shop, query)
        page = answers.rank_page(shop, query.user, query.item or (), query)
        metrics.answers.labels(page.source).inc()
        fields = {**answers.describe(shop), "unknown": page.unknown, "next": page.next}
        return answers.respond(shop, fields, page.items)

    @app.post("/recommend", response_model=schemas.BatchAnswer, responses=GONE)
    async def recommend_batch(batch: schemas.RecommendBatch) -> Any:
        """Lists for many users and histories in one request, all of one publication."""
        return await _answer_batch(watcher.shop, batch, metrics)

    @app.get("/similar", response_model=schemas.Answer, responses=GONE, openapi_extra=SIMILAR.openapi)
    async def similar(request: Request) -> Any:
        """The items most similar to one."""
        query = SIMILAR.read(request)
        shop = watcher.shop
        if (known := answers.not_modified(request, shop)) is not None:
            return known
        items, following = answers.cut_page(shop, shop.similar_items(query.item, query.n), query)
        return answers.respond(shop, {**answers.describe(shop), "unknown": [], "next": following}, items)

    def answer_list(request: Request, name: ListName) -> Response:
        shop, query = watcher.shop, ITEM_LIST.read(request)
        if (known := answers.not_modified(request, shop)) is not None:
            return known
        items = shop.list_items(name, query.n, category=query.category, window_days=query.window_days)
        page, following = answers.cut_page(shop, items, query)
        fields = {"dataset": shop.dataset, "publication": shop.publication, "next": following}
        return answers.respond(shop, fields, page)

    def get_list(path: str, description: str) -> Callable[[Handler], Handler]:
        model, extra = schemas.ListAnswer, ITEM_LIST.openapi
        return app.get(path, response_model=model, responses=GONE, openapi_extra=extra, description=description)

    @get_list("/popular", "Items that most users like in the window, for everybody.")
    async def popular(request: Request) -> Any:
        return answer_list(request, "popular")

    @get_list("/trending", "Items that more users came to like in the window than their past lets expect.")
    async def trending(request: Request) -> Any:
        return answer_list(request, "trending")

    @get_list("/new", "Items whose first event is in the window, the latest first.")
    async def new(request: Request) -> Any:
        return answer_list(request, "new")

    @get_list("/lists/{name}", "`/popular`, `/trending` or `/new`, under one address.")
    async def lists(request: Request, name: Annotated[ListName, Path(description="the list")]) -> Any:
        return answer_list(request, name)


async def _answer_batch(shop: Recommender, batch: schemas.RecommendBatch, metrics: Metrics) -> Response:
    """Answer the queries of a batch one after the other, letting other requests in between."""
    answers.check_options(shop, batch)
    answers.read_offset(shop, batch)  # once, so that a page of another publication is refused as a whole
    count = (batch.n or shop.rules.count_items(batch.placement)) * len(batch.queries)
    if count > schemas.MAX_BATCH_ITEMS:
        raise HTTPException(
            422,
            f"queries: {len(batch.queries)} lists have {count:,} items, more than {schemas.MAX_BATCH_ITEMS:,}; "
            "give fewer queries or a smaller n",
        )
    parts, following = [], None
    for reader in batch.queries:
        fields: dict[str, Any] = {"user": reader.user, "unknown": [], "error": None}
        encoded = b"[]"
        try:
            page = answers.rank_page(shop, reader.user, reader.items or (), batch)
        except InputError as error:  # of this query, such as an unknown user
            fields["error"] = str(error)
        else:
            metrics.answers.labels(page.source).inc()
            fields["unknown"], encoded = page.unknown, answers.encode_items(page.items)
            following = following or page.next
        parts.append(answers.encode(fields, "items", encoded))
        await asyncio.sleep(0)
    head = {**answers.describe(shop), "next": following}
    return Response(answers.encode(head, "answers", b"[%s]" % b", ".join(parts)), media_type="application/json")
