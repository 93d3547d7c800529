"""Metrics of users that a run's tables lack, at any k, from the ranks of the targets that the tables are made of."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from oneclass.models.evaluation.definitions import (
    LIST_METRICS,
    METRICS_AT_K,
    NEW_ITEM_METRICS,
    SEEN_ITEM_METRICS,
    USER_METRICS,
)
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.evaluation.metrics_at_k import WITHOUT_K, UserMetric, find_metric
from oneclass.tasks.evaluate.jobs import clear_caches, collect_test_ranks
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.evaluate.tables import RankedList, compare_lists
from oneclass.tasks.protocols import PROTOCOLS, FittedSplit
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home


class ListRanks(NamedTuple):
    """The ranks of the targets of all test users by one score of one model."""

    model: str
    score: str
    targets: RankedTargets


def check_names(names: Sequence[str], protocol: str) -> None:
    """Refuse names that are no metric.

    Raises:
        ValueError: of an unknown name; it lists what there is.
    """
    validation = f"validation_{PROTOCOLS[protocol].tuned_by}"
    of_tables = [*USER_METRICS, *SEEN_ITEM_METRICS, *NEW_ITEM_METRICS, *LIST_METRICS, validation]
    if unknown := [name for name in names if name not in of_tables and find_metric(name) is None]:
        at_k = [name for name in METRICS_AT_K if name.endswith("@k")]
        others = dict.fromkeys(name for name in [*WITHOUT_K, *of_tables] if "@" not in name)
        fixed = [name for name in of_tables if "@" in name and find_metric(name) is None]
        raise ValueError(
            f"metrics {', '.join(unknown)}: unknown. There are {', '.join(at_k)} with any whole number k from 1, "
            f"{', '.join([*others, *fixed])}"
        )


def collect_ranks(home: Home, splits: Sequence[FittedSplit], models: Sequence[str]) -> list[ListRanks]:
    """Rank the targets of the test users of a protocol's splits by every score of the models, in their order.

    Args:
        splits: the digests of the splits, those without a test part among them, and of the fits by model.
    """
    tested = [(digest, fits) for digest, fits in splits if "test" in matrices.load_split(home, digest).parts]
    found = []
    for model in models:
        by_score: dict[str, list[RankedTargets]] = {}
        for digest, fits in tested:
            for score, ranked in collect_test_ranks(home, digest, model, fits[model]).items():
                by_score.setdefault(score, []).append(ranked)
        found += [ListRanks(model, score, RankedTargets.concatenate(of)) for score, of in by_score.items()]
    clear_caches()
    return found


def evaluate_lists(
    lists: Sequence[ListRanks], metrics: Mapping[str, UserMetric], values: pl.DataFrame, pairs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add the rows of metrics to the tables of an evaluation, `Evaluation.metrics` and `Evaluation.comparisons`."""
    ranked = []
    for model, score, targets in lists:
        of_users = {name: metric(targets.ranks) for name, metric in metrics.items()}
        means = {name: mean_and_error(of) for name, of in of_users.items() if not np.isnan(of).all()}
        ranked.append(RankedList(model, score, of_users, means, {}, [], []))
    rows = [
        (one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in ranked
        for metric, mean in one.means.items()
    ]
    of_pairs = compare_lists(ranked)
    return (
        values.vstack(pl.DataFrame(rows, schema=values.schema, orient="row")),
        pairs.vstack(pl.DataFrame(of_pairs, schema=pairs.schema, orient="row")),
    )
