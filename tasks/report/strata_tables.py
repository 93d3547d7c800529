"""Build the tables of the models by strata of users and items, and the sentence above them."""

from typing import Any

import polars as pl

from oneclass.tasks.evaluate.strata import ACTIVITY, METRICS, POPULARITY
from oneclass.tasks.html.numbers import format_significant
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.report.headline import describe_ranked_list
from oneclass.tasks.report.tables import Column, Table

MAX_LISTS = 5  # beside one another
BASELINE = "popularity"
NAMES = {ACTIVITY: "users by their history", POPULARITY: "items by their likes"}
ENDS = (
    (ACTIVITY, "for the users with the shortest and with the longest histories"),
    (POPULARITY, "on the items with the fewest and with the most likes"),
)

RankedListName = tuple[str, str]  # model and score


def build_strata_tables(
    rows: pl.DataFrame, main: dict[str, list[LeaderboardRow]], published: LeaderboardRow | None
) -> dict[str, Table]:
    """Build a table per protocol, a row per stratum and a column per list: the published one, popularity and the best.

    Args:
        rows: of the query `report/strata`.
        main: the leaderboards.
        published: the row of the published list; None if no list of this run is.
    """
    tables = {}
    for protocol, of_protocol in main.items():
        metric, lists = _choose_metric(protocol), _choose_lists(of_protocol, published)
        chosen = rows.filter(protocol=protocol, metric=metric)
        if chosen.is_empty():
            continue
        columns = [
            Column("strata", "divided"),
            Column("stratum", "part", explain="thirds of the users or items"),
            Column("range", "from, to", explain="the lowest and the highest value in the part"),
            Column("users", "users", "count", "those the metric is over: of items, the users with a held-out one"),
            Column("targets", "to be found", "count"),
            *(Column("/".join(name), describe_ranked_list(*name), "metric", error=f"{'/'.join(name)} error")
              for name in lists),
        ]  # fmt: skip
        tables[protocol] = Table(
            f"strata-{protocol}",
            f"{metric} of some lists by parts of the users and of the items, {protocol}",
            "evaluation.strata",
            columns,
            pl.DataFrame(_build_rows(chosen, lists), infer_schema_length=None),
            cards=False,
        )
    return tables


def _choose_metric(protocol: str) -> str:
    return next(metric for metric in PROTOCOLS[protocol].main_metrics if metric in METRICS)


def _choose_lists(rows: list[LeaderboardRow], published: LeaderboardRow | None) -> list[RankedListName]:
    """Choose lists in the order of the leaderboard, of each model one: the published list, else the best."""
    lists: dict[str, str] = {}
    for row in rows:
        if published and (row.model, row.score) == (published.model, published.score):
            lists[row.model] = row.score
        lists.setdefault(row.model, row.score)
    first = [model for model in (published.model if published else "", BASELINE) if model in lists]
    others = [model for model in lists if model not in first][: MAX_LISTS - len(first)]
    return [(model, score) for model, score in lists.items() if model in (*first, *others)]


def _build_rows(rows: pl.DataFrame, lists: list[RankedListName]) -> list[dict[str, Any]]:
    """Build a row per stratum, in their order."""
    built: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        cells = built.setdefault(
            (row["strata"], row["stratum"]),
            {
                "strata": NAMES[row["strata"]],
                "stratum": row["stratum"],
                "range": _format_range(row["least"], row["most"]),
                "users": row["users"],
                "targets": row["targets"],
            },
        )
        if (row["model"], row["score"]) in lists:
            key = f"{row['model']}/{row['score']}"
            cells |= {key: row["value"], f"{key} error": row["standard_error"]}
    return list(built.values())


def _format_range(least: float, most: float) -> str:
    ends = dict.fromkeys(format_significant(end) for end in (least, most))
    return " to ".join(ends)


def describe_strata(rows: pl.DataFrame, main: dict[str, list[LeaderboardRow]], published: LeaderboardRow | None) -> str:
    """Describe how well the published list, else the best, does at both ends, by the first protocol."""
    protocol, of_protocol = next(iter(main.items()), ("", []))
    if published and published.protocol in main:
        protocol, of_protocol = published.protocol, main[published.protocol]
    if not of_protocol:
        return ""
    metric, row = _choose_metric(protocol), published or of_protocol[0]
    of_list = rows.filter(protocol=protocol, metric=metric, model=row.model, score=row.score)
    phrases = []
    for strata, where in ENDS:
        values = dict(of_list.filter(strata=strata).select("stratum", "value").rows())
        if {"low", "high"} <= values.keys():
            phrases.append(f"{values['low']:.3f} and {values['high']:.3f} {where}")
    name = describe_ranked_list(row.model, row.score)
    return f"On {protocol}, {metric} of {name} is {'; '.join(phrases)}." if phrases else ""
