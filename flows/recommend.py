"""Recommend from the current publication, for a user or any history."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import Count, DatasetParameters
from oneclass.tasks.errors import InputError


@dataclass(frozen=True, kw_only=True)
class RecommendParameters(DatasetParameters):
    """Parameters of `flows.recommend`.

    Attributes:
        user: a user's id, as it stands in the logs
        item: items that somebody likes, the newest last, known to the logs or not, instead of --user
        n: how many items; by default as many as the placement has, else 20
        placement: a placement of the data set's file, whose rules hold too
        where: a condition on the columns that rules may name, such as "stock > 0"
        list_: a list for everybody, instead of --user
        window_days: of --list: 7 or 30 days; by default the longer
        seen: whether to include the items of the history; by default as published (publish.seen)
        json_: print JSON
    """

    user: str | None = None
    item: list[str] = field(default_factory=list[str])
    n: Count | None = None
    placement: str | None = None
    where: str | None = None
    list_: Annotated[Literal["popular", "trending", "new"] | None, Parameter(name="--list")] = None
    window_days: int | None = None
    seen: Literal["include", "exclude"] | None = None
    json_: Annotated[bool, Parameter(name="--json")] = False


def recommend(given: RecommendParameters) -> str:
    """Recommendations from what is published, for a user of the logs or for any history, or a list for everybody."""
    if sum([given.user is not None, bool(given.item), given.list_ is not None]) != 1:
        raise InputError("--user, --item and --list: give one of them.")
    from oneclass.tasks.recommend import load, text

    home, dataset = given.find_home()
    shop = load(home.root, dataset.name)
    if given.list_ is not None:
        found = shop.list_items(given.list_, given.n or 20, window_days=given.window_days)
        return text.format_list(shop, found, given.list_, as_json=given.json_)
    unknown = shop.unknown(given.item)
    ask = partial(shop.recommend, given.item) if given.user is None else partial(shop.recommend_for, given.user)
    found = ask(given.n, seen=given.seen, placement=given.placement, where=given.where)
    return text.format_json(shop, found, unknown) if given.json_ else text.format_table(shop, found, unknown)


if __name__ == "__main__":
    run_as_program("recommend")
