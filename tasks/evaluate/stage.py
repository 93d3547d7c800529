"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

`tasks/evaluate/jobs.py` evaluates batches of users; this module joins their results, and `tasks/evaluate/tables.py`
writes the rows.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks import leaderboard
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.evaluate import cache, calibration, explicit_negatives, jobs
from oneclass.tasks.evaluate.jobs import EvalBatch
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, group_ranks_by_degree, target_degrees, users_with_targets
from oneclass.tasks.evaluate.tables import RankedList, write_evaluation
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import is_model_error

logger = logging.getLogger(__name__)

ValidationFits = tuple[str, dict[str, str]]  # digest of a split, and of the models' fits on it


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
    matrices_digest: str,
    fit_digests: dict[str, str],
    executor: Executor = LOCAL,
    *,
    validation: ValidationFits | None = None,
) -> Evaluated:
    """Rewrite this run's rows of the `evaluation` tables for one protocol.

    `metrics` has every metric of the test part, and `validation_ndcg@100` if there is a validation part; `comparisons`
    every pair of ranked lists by these, once, in the order of `fit_digests`; `beyond_accuracy` the properties of the
    test users' top recommendations. On leave_one_out, `ranks_by_degree` and `ranks_by_both_degrees` have the strict
    ranks by training degrees, `like_by_degree` and `calibration` the models' `like`. `considered` has the evaluation of
    `like` on explicit feedback, if the split has explicit negatives.

    The rows of an earlier run with the same fits and split are copied (`tasks.evaluate.cache`). A model that cannot be
    evaluated, for example because of a NaN score, is left out. A model that is worse than random or than popularity is
    named in a warning (`tasks.leaderboard.add_weaknesses`).

    Args:
        matrices_digest: the protocol's split in the matrix store.
        fit_digests: digest of each fitted model, by the model's name.
        executor: runs the batches of users.
        validation: the split that has the protocol's validation part, and its fits, if it is another one.

    Raises:
        OneclassError: no model can be evaluated; the error of the last one.
        ContractBroken: a rule over the tables was broken; they are unchanged.
    """
    judged = [(matrices_digest, fit_digests), *([validation] if validation else [])]
    cache_key = cache.evaluation_digest(home, protocol, judged)
    if earlier := cache.find_cached_evaluation(home, run_id, protocol, cache_key):
        found = _Evaluation(Evaluated(**earlier.result))
    else:
        found = _evaluate_models(home, judged, executor)
    with warehouse.run_stage(home, run_id, "evaluate", {"protocol": protocol}) as connection:
        if earlier:
            cache.copy_cached_rows(connection, run_id, protocol, earlier.run_id)
        else:
            write_evaluation(connection, run_id, protocol, found.ranked, found.likes, found.explicit_feedback)
        if not found.evaluated.failed:  # the next run tries failed models again
            cache.cache_evaluation(connection, run_id, protocol, cache_key, vars(found.evaluated))
        table = leaderboard.group_by_protocol(leaderboard.load_leaderboard(connection, run_id)).get(protocol, [])
    for sentence in leaderboard.list_weaknesses(table):
        logger.warning("%s", sentence)
    return found.evaluated


@dataclass(frozen=True)
class _Evaluation:
    """The result of an evaluation and, unless it is a cached one, the content of the tables."""

    evaluated: Evaluated
    ranked: list[RankedList] = field(default_factory=list)
    likes: list[calibration.LikeCalibration] = field(default_factory=list)
    explicit_feedback: list[explicit_negatives.ExplicitFeedbackResult] = field(default_factory=list)


def _evaluate_models(home: Home, judged: Sequence[ValidationFits], executor: Executor) -> _Evaluation:
    """Evaluate the ranked lists of every model that was fitted on all splits, and its `like` on leave_one_out.

    Args:
        judged: the protocol's splits with the digests of their fits, that with the test part first.
    """
    splits = [(digest, jobs.load_cached_split(home, digest), fits) for digest, fits in judged]
    (_, split, fit_digests) = splits[0]
    names = [name for name in fit_digests if all(name in fits for _, fits in judged)]
    protocol, users = split.protocol, len(users_with_targets(split.parts["test"]))
    found = _Evaluation(Evaluated(protocol, users, len(split.parts["test"].users) - users))
    if users == 0:
        logger.warning(
            "%s: no test user has anything to be found, so nothing is evaluated; "
            "the log is too small for this protocol",
            protocol,
        )
        return found
    failed, degrees = found.evaluated.failed, _TrainingDegrees.of(split)
    truth = calibration.load_truth(home, split) if protocol == "leave_one_out" else None
    pending = {
        name: [
            jobs.submit_evaluation(executor, home, digest, of, name, fits[name], truth) for digest, of, fits in splits
        ]
        for name in names
    }
    for name in names:
        try:
            started = perf_counter()
            batches: dict[str, list[EvalBatch]] = {}
            for of_split in pending.pop(name):
                batches |= jobs.gather_batches(name, of_split)
            logger.info("%s %s: evaluated in %.1f s", protocol, name, perf_counter() - started)
            ranked = list(_ranked_lists(name, split, degrees, batches))
            like, explicit_feedback = _evaluate_like(name, batches["test"])
        except Exception as error:
            if not is_model_error(error) or len(failed) == len(names) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, name, error)
            failed[name] = str(error)
            continue
        found.ranked.extend(ranked)
        found.likes.extend([like] if like else [])
        found.explicit_feedback.extend([explicit_feedback] if explicit_feedback else [])
    if found.explicit_feedback and (baseline := explicit_negatives.evaluate_popularity_baseline(split)):
        found.explicit_feedback.append(baseline)
    jobs.clear_caches()
    return found


@dataclass(frozen=True)
class _TrainingDegrees:
    """Training degrees of a split, shared by the evaluations of its models.

    Attributes:
        items: int64 (items,).
        edges: `target_degrees` of the test part; empty except on leave_one_out.
    """

    items: np.ndarray
    edges: dict[str, np.ndarray]

    @classmethod
    def of(cls, split: SplitMatrices) -> "_TrainingDegrees":
        items, part = count_item_degrees(split.train), split.parts["test"]
        if split.protocol != "leave_one_out":
            return cls(items, {})
        return cls(items, target_degrees(np.diff(split.train.indptr)[part.rows], items, part.targets))


def _ranked_lists(
    name: str, split: SplitMatrices, degrees: _TrainingDegrees, batches_by_part: dict[str, list[EvalBatch]]
) -> Iterator[RankedList]:
    """Yield the ranked lists of one model, from its batches of each part."""
    protocol = split.protocol
    main, tuned_by = PROTOCOLS[protocol].main_metric, PROTOCOLS[protocol].tuned_by
    validation = _join_batches(batches_by_part.get("validation", []))
    for score, (of_users, edge_ranks) in _join_batches(batches_by_part["test"]).items():
        exposure = Exposure(degrees.items, split.train.shape[0])
        for batch in batches_by_part["test"]:
            exposure.take(batch.shown[score])
        means = metrics.average_over_users(of_users)
        if validation:
            on_validation = {f"validation_{tuned_by}": validation[score].of_users[tuned_by]}
            means |= {name: metrics.mean_and_error(values) for name, values in on_validation.items()}
            of_users = of_users | on_validation
        bins, cells = [], []
        if degrees.edges:
            bins = group_ranks_by_degree(edge_ranks, degrees.edges)
            cells = metrics.group_by_both_degrees(edge_ranks, degrees.edges["user"], degrees.edges["item"])
        logger.info(
            "%s %s/%s: %s %.4f over %d users", protocol, name, score, main, means[main].value, means[main].users
        )
        yield RankedList(name, score, of_users, means, exposure.metrics(), bins, cells)


def _join_batches(batches: list[EvalBatch]) -> dict[str, TargetRankMetrics]:
    """Join the ranks of all batches, by score."""
    with_ranks = [batch.ranks for batch in batches if batch.ranks]  # a batch whose users have no target has none
    return {
        score: TargetRankMetrics.concatenate([ranks[score] for ranks in with_ranks])
        for score in (with_ranks[0] if with_ranks else ())
    }


def _evaluate_like(
    name: str, batches: list[EvalBatch]
) -> tuple[calibration.LikeCalibration | None, explicit_negatives.ExplicitFeedbackResult | None]:
    """Evaluate a model's `like` on the samples of leave_one_out and on explicit feedback; None without these."""
    samples = [batch.sample for batch in batches if batch.sample]
    pairs = [batch.pairs for batch in batches if batch.pairs]
    like = feedback = None
    if samples:
        like = calibration.evaluate_like(name, calibration.CalibrationSample.concatenate(samples))
    if pairs:
        feedback = explicit_negatives.evaluate_explicit_feedback(
            name, explicit_negatives.ExplicitPairs.concatenate(pairs)
        )
    return like, feedback


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
