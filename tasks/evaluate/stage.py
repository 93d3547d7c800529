"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

`tasks/evaluate/jobs.py` evaluates batches of users; this module joins their results, and `tasks/evaluate/tables.py`
writes the rows.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np

from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.evaluate import calibration, jobs, own_metrics, tables
from oneclass.tasks.evaluate.jobs import EvalBatch
from oneclass.tasks.evaluate.own_metrics import NO_IDS, ChosenMetrics, IdsByIndex, choose_metrics
from oneclass.tasks.evaluate.ranking import (
    TargetRankMetrics,
    group_ranks_by_degree,
    target_degrees,
    users_with_targets,
)
from oneclass.tasks.evaluate.tables import RankedList, write_evaluation
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import PROTOCOLS, FittedSplit, find_protocol, is_fold
from oneclass.tasks.stores import stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import is_model_error

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluated:
    """The users of an evaluation; its results are in the warehouse.

    Attributes:
        users: number of test users with a target.
        users_without_target: number of test users left out.
        failed: why a model could not be evaluated, by its name; the tables do not have it.
    """

    protocol: str
    users: int
    users_without_target: int
    failed: dict[str, str] = field(default_factory=dict)


def evaluate(
    home: Home,
    run_id: str,
    protocol: str,
    judged: Sequence[FittedSplit],
    executor: Executor = LOCAL,
    *,
    metrics: Sequence[str] = (),
) -> Evaluated:
    """Rewrite this run's rows of the `evaluation` tables for one protocol.

    `metrics` has every metric of the test part, and `validation_ndcg@100` if there is a validation part; `comparisons`
    every pair of ranked lists by these, once, in the order of the fits; `beyond_accuracy` the properties of the
    test users' top recommendations. Of folds, each is over the users of all, and the catalogue is what any of them
    trains on. On leave_one_out, `ranks_by_degree` has the strict ranks by training degrees, `like_by_degree` and
    `calibration` the models' `like`. `considered` has the evaluation of `like` on explicit feedback, if the split has
    explicit negatives. `strata` has some metrics by strata of users and of items (`tasks.evaluate.tables`).

    The rows of an earlier run with the same fits and split are copied (`tasks.evaluate.tables`). A model that cannot be
    evaluated, for example because of a NaN score, is left out.

    Args:
        judged: the protocol's split, or its folds, with their fits; then the split that has its validation part.
        executor: runs the batches of users.
        metrics: of `EvaluateSettings`: further metrics of users.

    Raises:
        InputError: there is no such metric, or a metric of one's own failed.
        OneclassError: no model can be evaluated; the error of the last one.
        ContractBroken: a rule over the tables was broken; they are unchanged.
    """
    chosen = choose_metrics(metrics)
    open_cache = partial(tables.open_cache, protocol=protocol, judged=judged, metrics=chosen.digest)
    with warehouse.open_warehouse(home) as connection:  # for writing: it migrates an older warehouse
        earlier = tables.find_earlier(connection, open_cache(connection), protocol)
        ids = own_metrics.load_ids(connection) if chosen.own and not earlier else NO_IDS
    if earlier:
        found = Evaluation(Evaluated(**earlier["evaluated"]))
    else:
        found = _evaluate_models(home, judged, executor, chosen, ids)
    with stages.run_stage(home, run_id, "evaluate", {"protocol": protocol}) as connection:
        if earlier:
            tables.copy_rows(connection, run_id, protocol, earlier["run_id"])
        else:
            write_evaluation(connection, run_id, protocol, found.ranked, found.likes, found.explicit_feedback)
        if not found.evaluated.failed:  # the next run tries failed models again
            tables.store_evaluation(connection, open_cache(connection), run_id, protocol, vars(found.evaluated))
    return found.evaluated


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation and, unless it is a cached one, the content of the tables."""

    evaluated: Evaluated
    ranked: list[RankedList] = field(default_factory=list)
    likes: list[calibration.LikeCalibration] = field(default_factory=list)
    explicit_feedback: list[calibration.ExplicitFeedbackResult] = field(default_factory=list)


def _evaluate_models(
    home: Home,
    judged: Sequence[FittedSplit],
    executor: Executor,
    chosen: ChosenMetrics,
    ids: IdsByIndex,
) -> Evaluation:
    """Evaluate the stored fits of every model that was fitted on all splits.

    Args:
        judged: the protocol's splits with the digests of their fits, those with a test part first.
        ids: of all users and items, if there are metrics of one's own.
    """
    splits = [jobs.load_cached_split(home, digest) for digest, _ in judged]

    def submit(name: str) -> list[jobs.PendingEvaluation]:
        fitted = [jobs.EvaluatedFit(digest, name, fits[name], chosen.by_rank) for digest, fits in judged]
        pending = [
            jobs.submit_evaluation(executor, home, fit, split) for fit, split in zip(fitted, splits, strict=True)
        ]
        if not chosen.own:
            return pending
        return [of._replace(results=own_metrics.add_own_metrics(of, chosen.own, ids)) for of in pending]

    names = [name for name in judged[0][1] if all(name in fits for _, fits in judged)]
    found = evaluate_lists(splits, names, submit)
    jobs.clear_caches()
    return found


def evaluate_lists(
    splits: Sequence[SplitMatrices],
    names: Sequence[str],
    submit: Callable[[str], list[jobs.PendingEvaluation]],
) -> Evaluation:
    """Evaluate the ranked lists of models, and their `like` on leave_one_out.

    Args:
        splits: of a protocol, those with a test part first.
        submit: starts the evaluation of a model by name, on each split.
    """
    split, tested = splits[0], [of for of in splits if "test" in of.parts]
    protocol, users = find_protocol(split.protocol), sum(len(users_with_targets(of.parts["test"])) for of in tested)
    found = Evaluation(Evaluated(protocol, users, sum(len(of.parts["test"].users) for of in tested) - users))
    if users == 0:
        logger.warning(
            "%s: no test user has anything to be found, so nothing is evaluated; "
            "the log is too small for this protocol",
            protocol,
        )
        return found
    failed, degrees = found.evaluated.failed, _TrainingDegrees.of(tested)
    item_likes = tables.count_item_likes(tested)
    pending = {name: submit(name) for name in names}
    for name in names:
        try:
            started = perf_counter()
            gathered = [jobs.gather_batches(name, of_split) for of_split in pending.pop(name)]
            logger.info("%s %s: evaluated in %.1f s", protocol, name, perf_counter() - started)
            ranked = list(
                _ranked_lists(name, protocol, degrees, item_likes, gathered, is_folded=is_fold(split.protocol))
            )
            like, explicit_feedback = _evaluate_like(name, _of_part(gathered, "test"))
        except Exception as error:
            if not is_model_error(error) or len(failed) == len(names) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, name, error)
            failed[name] = str(error)
            continue
        found.ranked.extend(ranked)
        found.likes.extend([like] if like else [])
        found.explicit_feedback.extend([explicit_feedback] if explicit_feedback else [])
    if found.explicit_feedback and (baseline := calibration.evaluate_popularity_baseline(tested)):
        found.explicit_feedback.append(baseline)
    return found


@dataclass(frozen=True)
class _TrainingDegrees:
    """Training degrees of a protocol's test split or folds, shared by the evaluations of its models.

    Attributes:
        users: training users.
        items: int64 (items,), items that any fold trains on; sums over the folds.
        columns: for each fold the positions of its items among these.
        edges: `target_degrees` of the test part; empty except on leave_one_out.
    """

    users: int
    items: np.ndarray
    columns: list[np.ndarray]
    edges: dict[str, np.ndarray]

    @classmethod
    def of(cls, tested: Sequence[SplitMatrices]) -> "_TrainingDegrees":
        catalogue = np.unique(np.concatenate([split.items for split in tested]))
        columns = [np.searchsorted(catalogue, split.items) for split in tested]
        items = np.zeros(len(catalogue), dtype=np.int64)
        for split, of_split in zip(tested, columns, strict=True):
            items[of_split] += count_item_degrees(split.train)
        [split, *_], edges = tested, {}
        if split.protocol == "leave_one_out":
            part, degrees = split.parts["test"], count_item_degrees(split.train)
            edges = target_degrees(np.diff(split.train.indptr)[part.rows], degrees, part.targets)
        return cls(split.train.shape[0], items, columns, edges)

    def count_exposure(self, gathered: Sequence[dict[str, list[EvalBatch]]], score: str) -> Exposure:
        """Count the recommendations of the test users of all folds by one score."""
        exposure = Exposure(self.items, self.users)
        for columns, batches in zip(self.columns, gathered, strict=False):
            for batch in batches.get("test", []):
                times = np.zeros_like(self.items)
                times[columns] = batch.shown[score].times
                exposure.take(batch.shown[score]._replace(times=times))
        return exposure


def _ranked_lists(
    name: str,
    protocol: str,
    degrees: _TrainingDegrees,
    item_likes: np.ndarray,
    gathered: Sequence[dict[str, list[EvalBatch]]],
    *,
    is_folded: bool,
) -> Iterator[RankedList]:
    """Yield the ranked lists of one model, from its batches of each split and part.

    Args:
        is_folded: whether the test users are the validation users too.
    """
    main, tuned_by = PROTOCOLS[protocol].main_metric, PROTOCOLS[protocol].tuned_by
    tested = _join_batches(_of_part(gathered, "test"))
    validation = tested if is_folded else _join_batches(_of_part(gathered, "validation"))
    for score, ranks in tested.items():
        of_users, edge_ranks = ranks.of_users, ranks.edge_ranks
        exposure = degrees.count_exposure(gathered, score)
        means = metrics.average_over_users(of_users)
        if validation:
            on_validation = {f"validation_{tuned_by}": validation[score].of_users[tuned_by]}
            means |= {name: metrics.mean_and_error(values) for name, values in on_validation.items()}
            of_users = of_users | on_validation
        bins = group_ranks_by_degree(edge_ranks, degrees.edges) if degrees.edges else []
        logger.info(
            "%s %s/%s: %s %.4f over %d users", protocol, name, score, main, means[main].value, means[main].users
        )
        by_strata = list(tables.evaluate_strata(ranks.targets, item_likes))
        yield RankedList(name, score, of_users, means, exposure.metrics(), bins, by_strata, len(degrees.columns))


def _of_part(gathered: Sequence[dict[str, list[EvalBatch]]], part: str) -> list[EvalBatch]:
    """Return the batches of a part of all splits."""
    return [batch for batches in gathered for batch in batches.get(part, [])]


def _join_batches(batches: list[EvalBatch]) -> dict[str, TargetRankMetrics]:
    """Join the ranks of all batches, by score."""
    with_ranks = [batch.ranks for batch in batches if batch.ranks]  # a batch whose users have no target has none
    return {
        score: TargetRankMetrics.concatenate([ranks[score] for ranks in with_ranks])
        for score in (with_ranks[0] if with_ranks else ())
    }


def _evaluate_like(
    name: str, batches: list[EvalBatch]
) -> tuple[calibration.LikeCalibration | None, calibration.ExplicitFeedbackResult | None]:
    """Evaluate a model's `like` on the samples of leave_one_out and on explicit feedback; None without these."""
    samples = [batch.sample for batch in batches if batch.sample]
    pairs = [batch.pairs for batch in batches if batch.pairs]
    like = feedback = None
    if samples:
        like = calibration.evaluate_like(name, calibration.concatenate(samples))
    if pairs:
        feedback = calibration.evaluate_explicit_feedback(name, calibration.concatenate(pairs))
    return like, feedback


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
