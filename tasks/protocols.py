"""The evaluation protocols: how each holds edges out, and its metrics. The only definition of both."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import warehouse


@dataclass(frozen=True)
class Protocol:
    """One way to hold edges out.

    Attributes:
        title, meaning: texts for the report.
        main_metrics: the columns of the leaderboard. The first ranks the models and is the metric of comparisons.
        tuned_by: the metric on validation users or edges that settings are chosen by.
    """

    title: str
    meaning: str
    main_metrics: tuple[str, ...]
    tuned_by: str

    @property
    def main_metric(self) -> str:
        """The metric that ranks the models."""
        return self.main_metrics[0]


PROTOCOLS = {
    "strong_generalization": Protocol(
        "Users never seen",
        "No model has seen the test users: each is known by four fifths of their likes, and the rest is to be found.",
        main_metrics=("ndcg@100", "recall@20", "recall@50", "mean_rank"),
        tuned_by="ndcg@100",
    ),
    "leave_one_out": Protocol(
        "One like held out",
        "Every user has been seen. One like of each, or of each of a sample where there are many, is to be found.",
        main_metrics=("mean_rank", "median_rank", "ndcg@100"),
        tuned_by="mean_rank",
    ),
    "next_events": Protocol(
        "What came next",
        "Models learn from what was there before a day; the likes of that day and after it are to be found.",
        main_metrics=("ndcg@100", "recall@20", "recall@50", "mean_rank"),
        tuned_by="ndcg@100",
    ),
    "cold_items": Protocol(
        "New items",
        "Models learn from nine tenths of the items, and from nine tenths of these items' likes. The other items are "
        "new and scored by their attributes. New items are ranked among new ones, and known items among known ones.",
        main_metrics=("ndcg@100_new_items", "recall@20_new_items", "ndcg@100", "recall@20"),
        tuned_by="ndcg@100",
    ),
    "given": Protocol(
        "The data set's own split",
        "The test file that the data set comes with is to be found.",
        main_metrics=("recall_of_all@20", "ndcg@20", "mean_rank"),
        tuned_by="ndcg@20",
    ),
}
ALL_EDGES = "all_edges"  # not a protocol: every curated edge, for the published model
# Not a protocol: next_events with its cut repeated on its own training edges, whose targets are validation edges.
NEXT_EVENTS_VALIDATION = "next_events_validation"
# In the name of a fold's split, between its protocol and its number, from 1.
FOLD_INFIX = "_fold_"
# The protocols that may choose what is published, the preferred first, with the split that has their validation part.
PUBLISH_PROTOCOLS = {"next_events": NEXT_EVENTS_VALIDATION, "strong_generalization": "strong_generalization"}
# The metric that the published model is chosen by, on validation users; the same under both protocols that may choose.
VALIDATION_METRIC = f"validation_{PROTOCOLS['strong_generalization'].tuned_by}"

FittedSplit = tuple[str, Mapping[str, str]]  # digest of a split, and of the models' fits on it by name


def is_fold(split: str) -> bool:
    """Whether the split is a fold, whose test users are its validation users too."""
    return FOLD_INFIX in split


def find_protocol(split: str) -> str:
    """Return the protocol of a split or fold."""
    return split.partition(FOLD_INFIX)[0]


def list_splits(protocol: str, splits: Collection[str]) -> list[str]:
    """Return the names of a protocol's splits, of those of a run: its only one, or its folds."""
    return [split for split in splits if find_protocol(split) == protocol]


def find_validation_splits(protocol: str, splits: Collection[str]) -> list[str]:
    """Return the names of the splits, of those of a run, by whose validation parts models are judged for a protocol.

    A split without such a part has it drawn from its training edges (`tasks.tuning.validation`).
    """
    by_time = protocol == "next_events" and NEXT_EVENTS_VALIDATION in splits
    return [NEXT_EVENTS_VALIDATION] if by_time else list_splits(protocol, splits)


def describe_folds(count: int) -> str:
    """Return words to follow a number of users who are judged by in so many splits; empty for one."""
    return f" in {count} folds" if count > 1 else ""


def choose_publish_protocol(setting: str, splits: Collection[str]) -> str | None:
    """Return the protocol by whose validation part models are chosen for publishing; None if no split has one.

    Published lists go to known users, tomorrow: `auto` takes next_events where it has validation edges by time.

    Args:
        setting: `publish.protocol`.
        splits: the names of a run's splits.

    Raises:
        InputError: the run lacks the validation part that the setting names.
    """
    available = [name for name, split in PUBLISH_PROTOCOLS.items() if list_splits(split, splits)]
    if setting == "auto":
        return available[0] if available else None
    if setting not in available:
        raise InputError(
            f"setting publish.protocol = {setting}: this run has no validation edges of it. Add it to --protocols; "
            "next_events needs times, users who return, and split.validation = auto or latest. Or leave "
            "publish.protocol at auto."
        )
    return setting


def find_deciding_protocol(connection: duckdb.DuckDBPyConnection, run_id: str) -> str | None:
    """Find the protocol that decided what an evaluated run publishes, by its tables; None without an evaluation.

    If no split had validation users to choose by (`choose_publish_protocol`), it is the first protocol that the run
    evaluated.
    """
    values = {"run_id": run_id, "metric": VALIDATION_METRIC}
    values |= {"choosing": list(PUBLISH_PROTOCOLS), "protocols": list(PUBLISH_PROTOCOLS | PROTOCOLS)}
    found = warehouse.select(connection, "evaluate/deciding_protocol", **values)
    return found.item() if len(found) else None


def list_main_metrics() -> list[dict[str, Any]]:
    """Return the parameter `$main_metrics` of queries; place 0 has the metric that ranks a protocol's models."""
    return [
        {"protocol": name, "metric": metric, "place": place}
        for name, protocol in PROTOCOLS.items()
        for place, metric in enumerate(protocol.main_metrics)
    ]
