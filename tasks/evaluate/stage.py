"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

`tasks/evaluate/jobs.py` has what is judged in one call, for some users, by `ranks` and `like`; here what is found for all
is put together, and `tasks/evaluate/tables.py` makes rows of it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.tasks import leaderboard
from oneclass.tasks.cluster import LOCAL, Executor
from oneclass.tasks.evaluate import cache, jobs
from oneclass.tasks.evaluate import calibration as evaluate_like
from oneclass.tasks.evaluate import calibration as evaluate_truth
from oneclass.tasks.evaluate import explicit_negatives as evaluate_considered
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


@dataclass(frozen=True)
class Evaluated:
    """How many users an evaluation was over; what it found is in the warehouse.

    Attributes:
        users: test users that were ranked for.
        users_without_target: test users left out, who have nothing to be found.
        failed: why a model could not be evaluated, by its name; there is nothing of it in the tables.
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
) -> Evaluated:
    """Rewrite this run's rows of the `evaluation` tables for one protocol.

    `metrics` gets every metric of the test part, and `validation_ndcg@100` where there is a validation part;
    `comparisons` every pair of ranked lists, once, in the order of `fit_digests`; `beyond_accuracy` what the test
    users' first recommendations are like. On leave_one_out, `ranks_by_degree` and `ranks_by_both_degrees` get
    the strict ranks by training degrees, `bin_likes_by_degree` and `calibration` the models' `like`. `considered` gets what
    `like` says of held-out items that were considered, where the split has some that were not liked.

    Args:
        matrices_digest: the protocol's split in the matrix store.
        fit_digests: digest of each fitted model, by the model's name.
        executor: where models are judged, some users a call.

    Where an earlier run evaluated the same fits on the same split, its rows are taken (`tasks.evaluate.cache`). A model that
    cannot be evaluated, because it gives a user a NaN, say, is left out. One that is worse than guesses, or than
    popularity, is named in a warning (`tasks.leaderboard.add_weaknesses`).

    Raises:
        OneclassError: no model at all can be evaluated; the first one's error.
        ContractBroken: a rule over the tables was broken; they are as they were.
    """
    made = cache.evaluation_digest(home, protocol, matrices_digest, fit_digests)
    if earlier := cache.find_cached_evaluation(home, run_id, protocol, made):
        found = _Evaluation(Evaluated(**earlier.result))
    else:
        found = _evaluate_models(home, matrices_digest, fit_digests, executor)
    with warehouse.run_stage(home, run_id, "evaluate", {"protocol": protocol}) as connection:
        if earlier:
            cache.copy_cached_rows(connection, run_id, protocol, earlier.run_id)
        else:
            write_evaluation(connection, run_id, protocol, found.ranked, found.likes, found.considered)
        if not found.evaluated.failed:  # which the next run tries again
            cache.cache_evaluation(connection, run_id, protocol, made, vars(found.evaluated))
        table = leaderboard.group_by_protocol(leaderboard.load_leaderboard(connection, run_id)).get(protocol, [])
    for sentence in leaderboard.list_weaknesses(table):
        logger.warning("%s", sentence)
    return found.evaluated


@dataclass(frozen=True)
class _Evaluation:
    """What an evaluation found, and, unless it is an earlier one's, what goes into the tables."""

    evaluated: Evaluated
    ranked: list[RankedList] = field(default_factory=list)
    likes: list[evaluate_like.LikeCalibration] = field(default_factory=list)
    considered: list[evaluate_considered.ExplicitFeedbackResult] = field(default_factory=list)


def _evaluate_models(home: Home, matrices_digest: str, fit_digests: dict[str, str], executor: Executor) -> _Evaluation:
    """Every model's ranked lists, and its `like` on leave_one_out."""
    split = jobs.load_cached_split(home, matrices_digest)
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
    truth = evaluate_truth.load_truth(home, split) if protocol == "leave_one_out" else None
    pending = {
        name: jobs.submit_evaluation(executor, home, matrices_digest, split, name, digest, truth)
        for name, digest in fit_digests.items()
    }
    for name in fit_digests:
        try:
            started = perf_counter()
            of_parts = jobs.gather_batches(name, pending.pop(name))
            logger.info("%s %s: judged in %.1f s", protocol, name, perf_counter() - started)
            ranked = list(_ranked_lists(name, split, degrees, of_parts))
            like, considered = _evaluate_like(name, of_parts["test"])
        except Exception as error:
            if not is_model_error(error) or len(failed) == len(fit_digests) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, name, error)
            failed[name] = str(error)
            continue
        found.ranked.extend(ranked)
        found.likes.extend([like] if like else [])
        found.considered.extend([considered] if considered else [])
    if found.considered and (baseline := evaluate_considered.evaluate_popularity_baseline(split)):
        found.considered.append(baseline)
    jobs.clear_caches()
    return found


@dataclass(frozen=True)
class _TrainingDegrees:
    """Training degrees that a split's models are judged by.

    Attributes:
        items: int64 (items,).
        edges: of the test part's targets, `target_degrees`; of leave_one_out alone.
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
    """Every ranked list of one model, from what its calls found for the users of each part."""
    protocol = split.protocol
    main, tuned_by = PROTOCOLS[protocol].evaluation_metrics, PROTOCOLS[protocol].tuned_by
    validation = _join_batches(batches_by_part.get("validation", []))
    for score, (of_users, edge_ranks) in _join_batches(batches_by_part["test"]).items():
        exposure = Exposure(degrees.items, split.train.shape[0])
        for one in batches_by_part["test"]:
            exposure.take(one.shown[score])
        means = metrics.average_over_users(of_users)
        if validation:
            means[f"validation_{tuned_by}"] = metrics.average_over_users(validation[score].of_users)[tuned_by]
        bins, cells = [], []
        if degrees.edges:
            bins = group_ranks_by_degree(edge_ranks, degrees.edges)
            cells = metrics.group_by_both_degrees(edge_ranks, degrees.edges["user"], degrees.edges["item"])
        logger.info(
            "%s %s/%s: %s %.4f over %d users", protocol, name, score, main, means[main].value, means[main].users
        )
        yield RankedList(name, score, of_users, means, exposure.metrics(), bins, cells)


def _join_batches(judged: list[EvalBatch]) -> dict[str, TargetRankMetrics]:
    """By score the ranks of the users of all calls."""
    having = [one.ranks for one in judged if one.ranks]  # all but those of which no user has a target
    return {
        score: TargetRankMetrics.concatenate([ranks[score] for ranks in having])
        for score in (having[0] if having else ())
    }


def _evaluate_like(
    name: str, judged: list[EvalBatch]
) -> tuple[evaluate_like.LikeCalibration | None, evaluate_considered.ExplicitFeedbackResult | None]:
    """A model's `like`, by what its calls sampled on leave_one_out and by what was considered; None where it has none."""
    samples = [one.sample for one in judged if one.sample]
    pairs = [one.pairs for one in judged if one.pairs]
    like = evaluate_like.evaluate_like(name, evaluate_like.CalibrationSample.concatenate(samples)) if samples else None
    considered = (
        evaluate_considered.evaluate_explicit_feedback(name, evaluate_considered.ExplicitPairs.concatenate(pairs))
        if pairs
        else None
    )
    return like, considered


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
