"""Choose whether lists and rankings include the items that a user has already, as `publish.seen` says.

Where users come back to items (groceries, music, places), those are what they take next, and a list without them misses
most of it. Where a second event is an exception (ratings, films), such items would only fill the lists.
"""

import json
from dataclasses import dataclass
from datetime import date
from typing import Literal

import duckdb

from oneclass.tasks.stores.warehouse import select

MIN_REPEATED_SHARE = 0.05  # of the pairs after the cut, from which on `auto` includes seen items
MIN_REPEATING_USERS = 50  # with fewer users, the share says little

SeenSetting = Literal["auto", "include", "exclude"]


@dataclass(frozen=True)
class SeenItems:
    """Whether seen items are included, and why, as a sentence."""

    included: bool = False
    reason: str = ""

    @property
    def choice(self) -> str:
        """The setting that would choose this."""
        return "include" if self.included else "exclude"


def choose_seen_items(connection: duckdb.DuckDBPyConnection, setting: SeenSetting, cut_day: date | None) -> SeenItems:
    """Choose by the setting; `auto` includes seen items where users come back to them from a day on.

    Args:
        cut_day: the first day of the targets of next_events; None if the log has no times.
    """
    if setting != "auto":
        return SeenItems(setting == "include", "as publish.seen says")
    if cut_day is None:
        return SeenItems(
            False,
            "no event has a time, so nothing shows whether users come back to items; if they do, set "
            "publish.seen=include",
        )
    repeats = select(connection, "split/repeats", next_from=cut_day).row(0, named=True)
    share = repeats["repeated"] / max(repeats["pairs"], 1)
    figures = (
        f"{100 * share:.1f} % of {repeats['pairs']:,} pairs of known users and items from {cut_day} on are repeats, of "
        f"{repeats['users']:,} users"
    )
    included = share >= MIN_REPEATED_SHARE and repeats["users"] >= MIN_REPEATING_USERS
    return SeenItems(
        included, f"{figures}; include takes {100 * MIN_REPEATED_SHARE:g} % and {MIN_REPEATING_USERS} users"
    )


def record_choice(connection: duckdb.DuckDBPyConnection, run_id: str, seen_items: SeenItems) -> None:
    """Record the choice among the settings of a run in `operations.runs`, as `seen_items`."""
    connection.execute(
        "update operations.runs set settings = json_merge_patch(settings, ?) where run_id = ?",
        [json.dumps({"seen_items": seen_items.choice}), run_id],
    )
