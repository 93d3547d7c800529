"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

`tasks/evaluate/calls.py` has what is judged in one call, for some users, by `ranks` and `like`; here what is found for all
is put together, and `tasks/evaluate/tables.py` makes rows of it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from models.evaluation import metrics
from models.evaluation.beyond_accuracy import Exposure
from models.numerics.counts import item_degrees
from tasks import main_table
from tasks.cluster import LOCAL, Executor
from tasks.evaluate import calls, kept
from tasks.evaluate import considered as evaluate_considered
from tasks.evaluate import like as evaluate_like
from tasks.evaluate import truth as evaluate_truth
from tasks.evaluate.calls import Judged
from tasks.evaluate.ranks import Ranks, by_degree, degrees_of_edges, with_targets
from tasks.evaluate.tables import Ranked, write
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import PROTOCOLS
from tasks.stores import warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices
from tasks.train import is_of_the_model

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
    the strict ranks by training degrees, `like_by_degree` and `calibration` the models' `like`. `considered` gets what
    `like` says of held-out items that were considered, where the split has some that were not liked.

    Args:
        matrices_digest: the protocol's split in the matrix store.
        fit_digests: digest of each fitted model, by the model's name.
        executor: where models are judged, some users a call.

    Where an earlier run evaluated the same fits on the same split, its rows are taken (`tasks.evaluate.kept`). A model that
    cannot be evaluated, because it gives a user a NaN, say, is left out. One that is worse than guesses, or than
    popularity, is named in a warning (`tasks.main_table.named`).

    Raises:
        OneclassError: no model at all can be evaluated; the first one's error.
        ContractBroken: a rule over the tables was broken; they are as they were.
    """
    made = kept.made_from(home, protocol, matrices_digest, fit_digests)
    if earlier := kept.find(home, run_id, protocol, made):
        found = _Found(Evaluated(**earlier.result))
    else:
        found = _judge(home, matrices_digest, fit_digests, executor)
    with warehouse.stage(home, run_id, "evaluate", {"protocol": protocol}) as connection:
        if earlier:
            kept.copy(connection, run_id, protocol, earlier.run_id)
        else:
            write(connection, run_id, protocol, found.ranked, found.likes, found.considered)
        if not found.evaluated.failed:  # which the next run tries again
            kept.keep(connection, run_id, protocol, made, vars(found.evaluated))
        table = main_table.by_protocol(main_table.rows(connection, run_id)).get(protocol, [])
    for sentence in main_table.weaknesses(table):
        logger.warning("%s", sentence)
    return found.evaluated


@dataclass(frozen=True)
class _Found:
    """What an evaluation found, and, unless it is an earlier one's, what goes into the tables."""

    evaluated: Evaluated
    ranked: list[Ranked] = field(default_factory=list)
    likes: list[evaluate_like.Like] = field(default_factory=list)
    considered: list[evaluate_considered.Considered] = field(default_factory=list)


def _judge(home: Home, matrices_digest: str, fit_digests: dict[str, str], executor: Executor) -> _Found:
    """Every model's ranked lists, and its `like` on leave_one_out."""
    split = calls.split_of(home, matrices_digest)
    protocol, users = split.protocol, len(with_targets(split.parts["test"]))
    found = _Found(Evaluated(protocol, users, len(split.parts["test"].users) - users))
    if users == 0:
        logger.warning(
            "%s: no test user has anything to be found, so nothing is evaluated; "
            "the log is too small for this protocol",
            protocol,
        )
        return found
    failed, degrees = found.evaluated.failed, _Degrees.of(split)
    truth = evaluate_truth.load(home, split) if protocol == "leave_one_out" else None
    pending = {
        name: calls.submit_evaluation(executor, home, matrices_digest, split, name, digest, truth)
        for name, digest in fit_digests.items()
    }
    for name in fit_digests:
        try:
            started = perf_counter()
            of_parts = calls.collected(name, pending.pop(name))
            logger.info("%s %s: judged in %.1f s", protocol, name, perf_counter() - started)
            ranked = list(_ranked(name, split, degrees, of_parts))
            like, considered = _judged_by(name, of_parts["test"])
        except Exception as error:
            if not is_of_the_model(error) or len(failed) == len(fit_digests) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, name, error)
            failed[name] = str(error)
            continue
        found.ranked.extend(ranked)
        found.likes.extend([like] if like else [])
        found.considered.extend([considered] if considered else [])
    if found.considered:
        found.considered.append(evaluate_considered.of_popularity(split))
    calls.let_go()
    return found


@dataclass(frozen=True)
class _Degrees:
    """Training degrees that a split's models are judged by.

    Attributes:
        items: int64 (items,).
        edges: of the test part's targets, `degrees_of_edges`; of leave_one_out alone.
    """

    items: np.ndarray
    edges: dict[str, np.ndarray]

    @classmethod
    def of(cls, split: SplitMatrices) -> "_Degrees":
        items, part = item_degrees(split.train), split.parts["test"]
        if split.protocol != "leave_one_out":
            return cls(items, {})
        return cls(items, degrees_of_edges(np.diff(split.train.indptr)[part.rows], items, part.targets))


def _ranked(name: str, split: SplitMatrices, degrees: _Degrees, of_parts: dict[str, list[Judged]]) -> Iterator[Ranked]:
    """Every ranked list of one model, from what its calls found for the users of each part."""
    protocol = split.protocol
    main, tuned_by = PROTOCOLS[protocol].judged_by, PROTOCOLS[protocol].tuned_by
    validation = _joined(of_parts.get("validation", []))
    for score, (of_users, edge_ranks) in _joined(of_parts["test"]).items():
        exposure = Exposure(degrees.items, split.train.shape[0])
        for one in of_parts["test"]:
            exposure.take(one.shown[score])
        means = metrics.over_users(of_users)
        if validation:
            means[f"validation_{tuned_by}"] = metrics.over_users(validation[score].of_users)[tuned_by]
        bins, cells = [], []
        if degrees.edges:
            bins = by_degree(edge_ranks, degrees.edges)
            cells = metrics.by_both_degrees(edge_ranks, degrees.edges["user"], degrees.edges["item"])
        logger.info(
            "%s %s/%s: %s %.4f over %d users", protocol, name, score, main, means[main].value, means[main].users
        )
        yield Ranked(name, score, of_users, means, exposure.metrics(), bins, cells)


def _joined(judged: list[Judged]) -> dict[str, Ranks]:
    """By score the ranks of the users of all calls."""
    having = [one.ranks for one in judged if one.ranks]  # all but those of which no user has a target
    return {score: Ranks.joined([ranks[score] for ranks in having]) for score in (having[0] if having else ())}


def _judged_by(
    name: str, judged: list[Judged]
) -> tuple[evaluate_like.Like | None, evaluate_considered.Considered | None]:
    """A model's `like`, by what its calls sampled on leave_one_out and by what was considered; None where it has none."""
    samples = [one.sample for one in judged if one.sample]
    pairs = [one.pairs for one in judged if one.pairs]
    like = evaluate_like.judged(name, evaluate_like.Sample.joined(samples)) if samples else None
    considered = evaluate_considered.judged(name, evaluate_considered.Pairs.joined(pairs)) if pairs else None
    return like, considered


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
