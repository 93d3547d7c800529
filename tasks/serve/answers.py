"""Answer requests for lists from one publication."""

import json
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl
from fastapi import HTTPException, Request, Response

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender, UnknownItems
from oneclass.tasks.serve import paging
from oneclass.tasks.serve.schemas import ListOptions


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
        HTTPException: as `paging.read_offset`.
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
    page, following = paging.cut_page(shop, items, options)
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
    return {"etag": paging.entity_tag(shop), "cache-control": "private, no-cache"}


def not_modified(request: Request, shop: Recommender) -> Response | None:
    """Return the answer 304 to a client that has the answer of this publication, else None."""
    if paging.has_current(request, shop):
        return Response(status_code=304, headers=keeping(shop))
    return None
