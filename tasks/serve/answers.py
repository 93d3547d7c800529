"""Answer requests for lists from one publication: lists, pages of them, and the tags to keep answers by.

A page is a part of a whole list, which is ranked anew for each page: so limits, pins and variety hold for the list, and
pages neither overlap nor leave anything out. A page's token names its publication, and no other answers it.
"""

import json
import re
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import polars as pl
from fastapi import HTTPException, Request, Response

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, UnknownItems
from oneclass.tasks.serve.schemas import ListOptions, Paging

TOKEN = re.compile(r"(\d{1,6})\.(.+)", re.DOTALL)
VERSION = version("oneclass")


def read_offset(shop: Recommender, paging: Paging) -> int:
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


def cut_page(shop: Recommender, items: pl.DataFrame, paging: Paging) -> tuple[pl.DataFrame, str | None]:
    """Return a page of a list, and the token of the next page, None for the last one."""
    offset = read_offset(shop, paging)
    if paging.limit is None:
        return items.slice(offset), None
    end = offset + paging.limit
    return items.slice(offset, paging.limit), f"{end}.{shop.publication}" if end < len(items) else None


def entity_tag(shop: Recommender) -> str:
    """Return the ETag of all answers of a publication: what they say depends on it, the URL and this version."""
    return f'"{shop.publication}/{VERSION}"'


def has_current(request: Request, shop: Recommender) -> bool:
    """Whether a request says that its sender has the answer of this publication."""
    if not (known := request.headers.get("if-none-match")):
        return False
    tags = [tag.strip().removeprefix("W/") for tag in known.split(",")]
    return "*" in tags or entity_tag(shop) in tags


class RankedList(NamedTuple):
    """A page of a list, the token of the next page, and the unknown items of the request.

    Attributes:
        source: what made the list, as `Metrics.answers` has it.
    """

    items: pl.DataFrame
    next: str | None
    unknown: list[str]
    source: str


def check_options(shop: Recommender, options: ListOptions) -> None:
    """Raise `HTTPException` 400 for a placement or a filter that a request may not have."""
    try:
        shop.rules.check_request(options.placement, options.where, any_column=False)
    except InputError as error:
        raise HTTPException(400, str(error)) from error


def rank_page(shop: Recommender, user: str | None, history: Sequence[str], options: ListOptions) -> RankedList:
    """Return a page of the list of a user, or of a history if the user is None.

    Raises:
        InputError: no such user.
        HTTPException: as `read_offset`.
    """
    filters: dict[str, Any] = {
        "within": options.within,
        "without": options.without,
        "seen": options.seen,
        "placement": options.placement,
        "where": options.where,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownItems)  # the answer lists them
        if user is None:
            items = shop.recommend(history, options.n, **filters)
        else:
            items = shop.recommend_for(user, options.n, **filters)
    page, following = cut_page(shop, items, options)
    unknown = shop.unknown(history)
    source = "user" if user is not None else "history" if len(unknown) < len(history) else "popular"
    return RankedList(page, following, unknown + shop.unknown(options.within or ()), source)


def describe(shop: Recommender) -> dict[str, Any]:
    """Return the publication and the model that answer."""
    return {"dataset": shop.dataset, "publication": shop.publication, "model": shop.model, "score": shop.score}


def encode(fields: dict[str, Any], name: str, values: bytes) -> bytes:
    """Return a JSON object of fields and of one more, whose value is JSON already."""
    return b"%s, %s: %s}" % (json.dumps(fields).encode()[:-1], json.dumps(name).encode(), values)


def encode_items(items: pl.DataFrame) -> bytes:
    """Return items as a JSON array; Polars does it ten times as fast as Python."""
    return items.write_json().encode()


def respond(shop: Recommender, fields: dict[str, Any], items: pl.DataFrame) -> Response:
    """Return the answer that a client can keep until the next publication."""
    return Response(encode(fields, "items", encode_items(items)), media_type="application/json", headers=keeping(shop))


def keeping(shop: Recommender) -> dict[str, str]:
    """Return the headers by which a client keeps an answer and asks whether it is still current."""
    return {"etag": entity_tag(shop), "cache-control": "private, no-cache"}


def not_modified(request: Request, shop: Recommender) -> Response | None:
    """Return the answer 304 to a client that has the answer of this publication, else None."""
    if has_current(request, shop):
        return Response(status_code=304, headers=keeping(shop))
    return None
