"""What reactions lists of one policy would get, estimated from logged lists of another whose propensities are known.

A logged list l shows items i, each with the probability p_li that the logging policy shows it, and gets a reaction r_li
to each (a click, a sale, a rating; 0 without one). The target policy shows i in l with the probability q_li, 1 or 0 if
it does not draw. The value of a policy is the mean sum of reactions to a list. It is assumed that the reaction to an
item does not depend on its place or on the other items of the list, and that p_li > 0 where q_li > 0. With the weights
w_li = q_li / p_li, L lists and guesses g_li of the reaction from any model (Swaminathan and Joachims 2015; Dudik,
Langford and Li 2011; Li et al. 2018 for the sum over a list's items):

    ips            V = sum_li w_li r_li / L
    snips          V = (sum_li w_li r_li / sum_li w_li) (sum_li q_li / L)
    doubly_robust  V = (sum_li q_li g_li + sum_li w_li (r_li - g_li)) / L

Standard errors are those of ratios of sums over users, or over lists where no user is given, by linearization; the
intervals are Student's. Since E[sum_li w_li] = sum_li q_li where the assumption p > 0 holds, the ratio of the two sums,
`supported_share`, tells how much of the target's lists the logged ones can speak for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

KEY = ("list_id", "item_id")
NUMBERS = ("propensity", "target_propensity", "reaction", "expected_reaction")
CONFIDENCE = 0.95
MIN_SUPPORTED_SHARE = 0.9
MIN_EFFECTIVE_SIZE = 50.0  # impressions


class OverlapTooSmallError(ValueError):
    """The logged lists show too little of what the target policy shows."""


@dataclass(frozen=True)
class OffPolicyEstimate:
    """The value of a target policy.

    Attributes:
        table: one row per estimator: estimator, value, standard_error, low, high (95 %).
        lists: how many lists.
        units: how many users, or lists without users, whose sums are taken as independent.
        logged_value: the mean sum of reactions to a logged list.
        effective_size: (sum w)^2 / sum w^2, as so many impressions of equal weight.
        supported_share: sum w / sum q, about 1 where the logging policy may show whatever the target does.
        largest_weight: the largest w.
    """

    table: pl.DataFrame
    lists: int
    units: int
    logged_value: float
    effective_size: float
    supported_share: float
    largest_weight: float


def off_policy(impressions: Any, target: Any, *, reactions: Any = None) -> OffPolicyEstimate:
    """Estimate what reactions the lists of a target policy would have got.

    Args:
        impressions: a frame (Polars, pandas, Arrow, or a dict of columns) with one row per logged list and item:
            list_id, item_id, propensity in (0, 1], `reaction` unless `reactions` are given, and optionally user_id,
            and expected_reaction (for `doubly_robust`).
        target: one row per item that the target policy may show in place of a logged list: list_id, item_id, and
            optionally target_propensity (1 by default), and expected_reaction.
        reactions: one row per reaction: list_id, item_id, and optionally reaction (1 by default); the impressions
            without one have 0.

    Raises:
        ValueError: a column is missing, a pair of list and item comes twice, a propensity is not in (0, 1], a value is
            not finite, a reaction has no impression, or a target list has none.
        OverlapTooSmallError: the effective size is below 50 impressions, or less than 90 % of what the target shows is
            supported, by more than two standard errors.
    """
    logged, wanted = _read("impressions", impressions, ["propensity"]), _read("target", target, [])
    if "target_propensity" not in wanted.columns:
        wanted = wanted.with_columns(target_propensity=pl.lit(1.0))
    _check_propensities(logged, "impressions", "propensity")
    _check_propensities(wanted, "target", "target_propensity")
    logged = _add_reactions(logged, reactions)
    if (strange := wanted.join(logged, on="list_id", how="anti")).height:
        raise ValueError(f"target: list {strange['list_id'][0]!r} has no impression ({_count(strange)}); leave it out")
    rows = logged.join(wanted.select(*KEY, "target_propensity"), on=KEY, how="left", maintain_order="left")
    rows = rows.with_columns(weight=pl.col("target_propensity").fill_null(0.0) / pl.col("propensity"))
    unit = "user_id" if "user_id" in logged.columns else "list_id"
    units = _sum_by_unit(rows, wanted, unit)
    weights = rows["weight"].to_numpy()
    squares = np.square(weights).sum()
    effective_size = float(weights.sum() ** 2 / squares) if squares > 0 else 0.0
    supported, error = _ratio(units["weight"], units["target"])
    if effective_size < MIN_EFFECTIVE_SIZE or supported + 2 * error < MIN_SUPPORTED_SHARE:
        raise OverlapTooSmallError(
            f"the overlap is too small: {supported:.0%} of what the target shows is supported by the impressions (at "
            f"least {MIN_SUPPORTED_SHARE:.0%} are needed), and they count as {effective_size:.0f} (at least "
            f"{MIN_EFFECTIVE_SIZE:.0f} are needed). Log more lists, or let more places explore"
        )
    return OffPolicyEstimate(
        _estimate(units),
        lists=logged["list_id"].n_unique(),
        units=units.height,
        logged_value=_ratio(units["reaction"], units["lists"])[0],
        effective_size=effective_size,
        supported_share=supported,
        largest_weight=float(weights.max()),
    )


def _read(name: str, given: Any, needed: list[str]) -> pl.DataFrame:
    """Return a frame with the key as text, checked."""
    frame = given if isinstance(given, pl.DataFrame) else pl.DataFrame(given)
    for column in (*KEY, *needed):
        if column not in frame.columns:
            raise ValueError(f"{name}: has no column {column}, only {', '.join(frame.columns) or 'none'}")
    names = [one for one in (*KEY, "user_id") if one in frame.columns]
    frame = frame.with_columns(pl.col(names).cast(pl.String))
    for column in names:
        if frame[column].null_count():
            raise ValueError(f"{name}: {column} is null in {frame[column].null_count():,} rows")
    if (twice := frame.filter(pl.struct(KEY).is_duplicated())).height:
        first = ", ".join(map(repr, twice.select(KEY).row(0)))
        raise ValueError(f"{name}: list and item come twice: {first} ({_count(twice)}); give each once")
    numbers = [one for one in frame.columns if one in NUMBERS]
    frame = frame.with_columns(pl.col(numbers).cast(pl.Float64))
    for column in numbers:
        if not frame[column].is_finite().fill_null(value=False).all():
            raise ValueError(f"{name}: {column} is null or not finite in some rows; give each row a number")
    return frame


def _check_propensities(frame: pl.DataFrame, name: str, column: str) -> None:
    wrong = frame.filter(~pl.col(column).is_between(0, 1, closed="right"))
    if wrong.height:
        raise ValueError(f"{name}: {column} = {wrong[column][0]} ({_count(wrong)}); it lies above 0 and up to 1")


def _add_reactions(logged: pl.DataFrame, reactions: Any) -> pl.DataFrame:
    if reactions is None:
        if "reaction" not in logged.columns:
            raise ValueError("impressions: have no column reaction; add it, or give `reactions`")
        return logged
    if "reaction" in logged.columns:
        raise ValueError("impressions have a column reaction and `reactions` are given too; give one of the two")
    found = _read("reactions", reactions, [])
    if "reaction" not in found.columns:
        found = found.with_columns(reaction=pl.lit(1.0))
    if (strange := found.join(logged, on=KEY, how="anti")).height:
        first = ", ".join(map(repr, strange.select(KEY).row(0)))
        raise ValueError(f"reactions: list and item without an impression: {first} ({_count(strange)})")
    joined = logged.join(found.select(*KEY, "reaction"), on=KEY, how="left", maintain_order="left")
    return joined.with_columns(pl.col("reaction").fill_null(0.0))


def _count(frame: pl.DataFrame) -> str:
    return "1 row" if frame.height == 1 else f"{frame.height:,} rows"


def _sum_by_unit(rows: pl.DataFrame, wanted: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Return the sums of each unit: lists, reaction, weight, weighted (w r), target (q), and robust if there are
    guesses.
    """
    has_guesses = "expected_reaction" in rows.columns and "expected_reaction" in wanted.columns
    corrected = pl.col("weight") * (pl.col("reaction") - pl.col("expected_reaction"))
    of_rows = rows.group_by(unit, maintain_order=True).agg(
        pl.col("list_id").n_unique().cast(pl.Float64).alias("lists"),
        pl.col("reaction").sum(),
        pl.col("weight").sum(),
        (pl.col("weight") * pl.col("reaction")).sum().alias("weighted"),
        *([corrected.sum().alias("corrected")] if has_guesses else []),
    )
    if unit == "user_id":
        wanted = wanted.drop("user_id", strict=False).join(rows.select("list_id", unit).unique(), on="list_id")
    guessed = pl.col("target_propensity") * pl.col("expected_reaction")
    of_targets = wanted.group_by(unit).agg(
        pl.col("target_propensity").sum().alias("target"),
        *([guessed.sum().alias("guessed")] if has_guesses else []),
    )
    units = of_rows.join(of_targets, on=unit, how="left", maintain_order="left").fill_null(0.0)
    return units.with_columns(robust=pl.col("corrected") + pl.col("guessed")) if has_guesses else units


def _estimate(units: pl.DataFrame) -> pl.DataFrame:
    count = units.height
    found = {"ips": _ratio(units["weighted"], units["lists"]), "snips": _self_normalized(units)}
    if "robust" in units.columns:
        found["doubly_robust"] = _ratio(units["robust"], units["lists"])
    width = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) if count > 1 else np.inf
    rows = [
        (name, value, error, value - width * error, value + width * error) for name, (value, error) in found.items()
    ]
    return pl.DataFrame(rows, schema=["estimator", "value", "standard_error", "low", "high"], orient="row")


def _ratio(above: pl.Series, below: pl.Series) -> tuple[float, float]:
    """Return sum(above) / sum(below) and its standard error over the units."""
    total = float(below.sum())
    value = float(above.sum()) / total
    return value, _error((above - value * below).to_numpy() / total)


def _self_normalized(units: pl.DataFrame) -> tuple[float, float]:
    """Return the product of sum(w r) / sum(w) and sum(q) / L, and its standard error."""
    weighted, weight, target, lists = (
        units[name].to_numpy().astype(np.float64) for name in ("weighted", "weight", "target", "lists")
    )
    reward, length = weighted.sum() / weight.sum(), target.sum() / lists.sum()
    of_reward = (weighted - reward * weight) / weight.sum()
    of_length = (target - length * lists) / lists.sum()
    return float(reward * length), _error(length * of_reward + reward * of_length)


def _error(influence: np.ndarray) -> float:
    """Return the standard error of a sum of independent influences, which add up to zero."""
    count = len(influence)
    return float(np.sqrt(count / (count - 1) * np.square(influence).sum())) if count > 1 else np.inf
