"""Pages of a list, and the tags by which clients keep answers.

A page is a part of a whole list, which is ranked anew for each page: so limits, pins and variety hold for the list, and
pages neither overlap nor leave anything out. A page's token names its publication, and no other answers it.
"""

import re
from importlib.metadata import version

import polars as pl
from fastapi import HTTPException, Request

from oneclass.tasks.recommend import Recommender
from oneclass.tasks.serve.schemas import Paging

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
