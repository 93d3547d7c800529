"""Statistics of nightly batches and what is usual for them: `operations.nights`.

A night is a run that reads the landing folder; runs of one date (UTC) are one night. The baseline has completed nights.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import duckdb
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from oneclass import sql
from oneclass.tasks.stores import warehouse

MAX_TOLD = 2  # figures that an alarm names
MAX_PAIRS = 200_000  # events before the night, and of it, by which users and items are matched
PAIRING_FACTORS = 16
MIN_PAIRS = 20
MIN_PAIRING = 0.1  # a lower value counts as this one, since nights are compared by ratios


@dataclass(frozen=True)
class Figure:
    """How a figure is described, and how far from the usual it may lie.

    Attributes:
        name, advice: what it is, and what may have happened.
        least_spread: the spread that is assumed at the least; of logarithms if nights are compared by ratios.
        below, above: spreads off the usual from which a value is unusual; None for never.
        bound: the highest value that is not unusual where nothing is usual yet, or no limit stands.
        of_volume: whether it is low on holidays.
    """

    name: str
    advice: str
    least_spread: float = 1.0
    below: float | None = None
    above: float | None = None
    bound: float | None = None
    of_volume: bool = False


FIGURES = {
    "delivered": Figure("new events", "the file of the night is missing", 0.1, 5, of_volume=True),
    "events": Figure("new events", "a file may be cut short or missing", 0.125, 4.5, of_volume=True),
    "hours_moved": Figure("hours by which events moved", "a part of the day may be missing", 0.25, None, 5),
    "user_level": Figure("place of users in the order of ids", "the end of a sorted file may be missing", 0.02, 4),
    "doubled_share": Figure("share of lines that stand twice", "a file may be written twice", 0.02, None, 6),
    "value_level": Figure("level of values", "values may be in another unit or column", 0.02, 6, 6),
    "days_ahead": Figure("days after the last nights", "dates may be wrong", 2, 6),
    "new_user_share": Figure("share of users never seen", "user ids may be written in another way", 0.05, None, 6),
    "new_item_share": Figure("share of items never seen", "item ids may be written in another way", 0.05, None, 6),
    "popularity": Figure("popularity of the items", "item ids may be mixed up", 0.1, 6),
    "pairing": Figure("fit of users and items", "a column of ids may be shifted or mixed up", 0.1, 5),
    "heaviest_user_share": Figure("share of one user", "a program may be at work", 0.03, None, 6, bound=0.4),
    "reject_share": Figure("share of rejected lines", "see raw.rejects for the reasons"),
    "hours_old": Figure("hours since the newest event", "the export may be late"),
}


def record_batch_stats(
    connection: duckdb.DuckDBPyConnection, run_id: str, bounds: Mapping[str, float | None] | None = None
) -> None:
    """Add the statistics of the night of `run_id` to `operations.nights`, after its logs are in `raw.events`.

    The first batch has no baseline (it may be a full backfill), so only its counts are recorded. `bounds` are the
    highest values allowed, by figure.
    """
    started_at, before = warehouse.select(connection, "nights/run_start", run_id=run_id).row(0)
    night = started_at.date()
    connection.execute(sql.statement("nights/files"), {"run_id": run_id, "night": night})
    connection.execute(sql.statement("nights/counts"), {"started_at": started_at})
    if before and warehouse.fetch_row(connection, "select count(*) from night_files") > (0,):
        connection.execute(sql.statement("nights/earlier_files"), {"night": night})
        for statement in ("nights/events", "nights/earlier_events", "nights/figures"):
            connection.execute(sql.statement(statement))
        rows = connection.execute(sql.statement("nights/pairs"), {"pairs": MAX_PAIRS}).fetchnumpy()
        user, item, is_tonight = (np.asarray(rows[name]) for name in ("user", "item", "is_tonight"))
        if pairing := compute_pairing(user[~is_tonight], item[~is_tonight], user[is_tonight], item[is_tonight]):
            connection.execute("insert into night_figures values ('pairing', ?, true, ?)", pairing)
    judge_night(connection, run_id, night, bounds)


def judge_night(
    connection: duckdb.DuckDBPyConnection, run_id: str, night: date, bounds: Mapping[str, float | None] | None = None
) -> None:
    """Write the rows of `night_figures` to `operations.nights`, with what is usual by the completed nights before."""
    bounds = bounds or {}
    limits = [{"figure": name, **asdict(of), "bound": bounds.get(name, of.bound)} for name, of in FIGURES.items()]
    connection.execute("delete from operations.nights where run_id = ?", [run_id])  # of an earlier try of the stage
    connection.execute(sql.statement("nights/judge"), {"run_id": run_id, "night": night, "limits": limits})


def compute_pairing(
    user: np.ndarray, item: np.ndarray, new_user: np.ndarray, new_item: np.ndarray
) -> tuple[float, float] | None:
    """Compute how well new pairs of users and items fit by earlier ones, and the standard error of that.

    The cosine of a new pair in the leading singular vectors of the earlier pairs, on average, less that of independent
    draws from the new users and items, in standard deviations of these draws. Popularities alone give 0, so it falls to
    0 if one column of ids is shifted or shuffled. None if too few pairs are of users and items that came before.
    """
    shape = tuple(np.concatenate(ids).max(initial=0) + 1 for ids in ((user, new_user), (item, new_item)))
    pairs = sp.coo_array((np.ones(len(user)), (user, item)), shape=shape).tocsr().sqrt()
    user_sums, item_sums = (np.asarray(pairs.sum(axis=axis)) for axis in (1, 0))
    known = (user_sums[new_user] > 0) & (item_sums[new_item] > 0)
    factors = min(PAIRING_FACTORS, min(shape) - 1)
    if factors < 1 or known.sum() < MIN_PAIRS:
        return None
    scale_users, scale_items = (sp.diags_array(np.maximum(sums, 1) ** -0.5) for sums in (user_sums, item_sums))
    left, values, right = svds(scale_users @ pairs @ scale_items, k=factors, v0=np.ones(min(shape)))
    first, second = (left * values)[new_user[known]], right.T[new_item[known]]
    for rows in (first, second):
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    count = len(first)
    expected = float(first.mean(axis=0) @ second.mean(axis=0))
    variance = float(((first.T @ first) * (second.T @ second)).sum()) / count**2 - expected**2
    if variance <= 0:
        return None
    found = float((first * second).sum()) / count
    return max((found - expected) / variance**0.5, MIN_PAIRING), count**-0.5


def describe_night(connection: duckdb.DuckDBPyConnection, run_id: str) -> str:
    """Describe what is unusual about a run's night in one sentence; empty if nothing is."""
    unusual = warehouse.select(connection, "nights/unusual", run_id=run_id).to_dicts()
    if not unusual:
        return ""
    told = "; ".join(map(_describe_figure, unusual[:MAX_TOLD]))
    more = f"; and {len(unusual) - MAX_TOLD} more in operations.nights" if len(unusual) > MAX_TOLD else ""
    return f"an unusual night: {told}{more}. Look at the newest file in landing: {FIGURES[unusual[0]['figure']].advice}"


def _describe_figure(row: dict[str, Any]) -> str:
    bounds = [(word, row[name]) for word, name in (("from", "usual_from"), ("to", "usual_to")) if row[name] is not None]
    usually = " ".join(f"{word} {_format_number(value)}" for word, value in bounds)
    return f"{FIGURES[row['figure']].name} {_format_number(row['value'])}, usually {usually}"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
