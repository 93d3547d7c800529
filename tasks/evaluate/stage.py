"""Evaluate: every fitted model ranks all items for the users of a protocol's test part.

Users are scored a block at a time, so that a users x items array is never held; what is kept of a user is one
number a metric. `tasks/evaluate/like.py` judges `like`; `tasks/evaluate/tables.py` makes rows of it all.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from models.base import Model
from models.evaluation import metrics
from models.evaluation.beyond_accuracy import FIRST, Exposure
from models.evaluation.metrics import DegreeBin
from models.evaluation.ranking import NotRankable, target_ranks
from models.generator.density_ratio import Truth
from models.numerics.threads import kernel_threads
from models.numerics.top_items import top_items
from tasks import machine, main_table
from tasks.cluster import HERE, Engine
from tasks.errors import OneclassError
from tasks.evaluate import considered as evaluate_considered
from tasks.evaluate import kept
from tasks.evaluate import like as evaluate_like
from tasks.evaluate import truth as evaluate_truth
from tasks.evaluate.tables import Ranked, write
from tasks.orchestration import progress
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import PROTOCOLS
from tasks.stores import fits, matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import Part, SplitMatrices
from tasks.train import is_of_the_model

logger = logging.getLogger(__name__)

EachScore = Callable[[csr_matrix, np.ndarray | None], Iterator[tuple[str, np.ndarray]]]


@dataclass(frozen=True)
class Evaluated:
    """How many users an evaluation was over; what it found is in the warehouse.

    Attributes:
        users: test users that were ranked for.
        users_without_target: test users left out, for they have nothing to be found.
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
    engine: Engine = HERE,
) -> Evaluated:
    """Rewrite this run's rows of the `evaluation` tables for one protocol.

    `metrics` gets every metric of the test part, and `validation_ndcg@100` where there is a validation part;
    `comparisons` every pair of ranked lists, once, in the order of `fit_digests`; `beyond_accuracy` what the test
    users' first recommendations are like. On leave_one_out, `ranks_by_degree` and `ranks_by_both_degrees` get
    the strict ranks by training degrees, `like_by_degree` and `calibration` the models' `like`. `considered` gets what
    `like` says of held-out items that were considered, where the split has such as were not liked.

    Args:
        matrices_digest: the protocol's split in the matrix store.
        fit_digests: digest of each fitted model, by the model's name.
        engine: where each model is judged.

    Where an earlier run evaluated the same fits on the same split, its rows are taken (`tasks.evaluate.kept`). A model that
    cannot be evaluated, for it gives a user a NaN, say, is left out. One that is worse than guesses, or
    than popularity, is named in a warning (`tasks.main_table.named`).

    Raises:
        OneclassError: no model at all can be evaluated; the first one's error.
        ContractBroken: a rule over the tables was broken; they are as they were.
    """
    made = kept.made_from(home, protocol, matrices_digest, fit_digests)
    if earlier := kept.find(home, run_id, protocol, made):
        found = _Found(Evaluated(**earlier.result))
    else:
        found = _judge(home, matrices_digest, fit_digests, engine)
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


def _judge(home: Home, matrices_digest: str, fit_digests: dict[str, str], engine: Engine) -> _Found:
    """Every model's ranked lists, and its `like` on leave_one_out."""
    split, _ = _split_and_degrees(home, matrices_digest)
    protocol, users = split.protocol, len(_with_targets(split.parts["test"]))
    found = _Found(Evaluated(protocol, users, len(split.parts["test"].users) - users))
    if users == 0:
        logger.warning(
            "%s: no test user has anything to be found, so nothing is evaluated; "
            "the log is too small for this protocol",
            protocol,
        )
        return found
    failed = found.evaluated.failed
    truth = evaluate_truth.load(home, split) if protocol == "leave_one_out" else None
    begun = {
        name: engine.begin(f"{name}: judge on {protocol}", _judged, home, matrices_digest, name, digest, truth)
        for name, digest in fit_digests.items()
    }
    for name, judged in begun.items():
        try:
            of_model, like, considered = judged()
        except Exception as error:
            if not is_of_the_model(error) or len(failed) == len(fit_digests) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, name, error)
            failed[name] = str(error)
            continue
        found.ranked.extend(of_model)
        found.likes.extend([like] if like else [])
        found.considered.extend([considered] if considered else [])
    if found.considered:
        found.considered.append(evaluate_considered.of_popularity(split))
    _split_and_degrees.cache_clear()
    return found


def _judged(
    home: Home, matrices_digest: str, name: str, digest: str, truth: Truth | None
) -> tuple[list[Ranked], evaluate_like.Like | None, evaluate_considered.Considered | None]:
    """Every ranked list of one model, its `like` on leave_one_out, and of what was considered, by what the stores have."""
    split, degrees = _split_and_degrees(home, matrices_digest)
    with machine.memory_for_model(f"evaluate: {name} ({split.protocol})"):
        model = fits.load(home, name, digest)
        of_model = list(_of_model(model, split, degrees))
        like = evaluate_like.of_model(model, split, truth) if split.protocol == "leave_one_out" else None
        return of_model, like, evaluate_considered.of_model(model, split, truth)


@functools.lru_cache(maxsize=1)
def _split_and_degrees(home: Home, digest: str) -> tuple[SplitMatrices, np.ndarray]:
    """A split and its items' training degrees, kept from one model to the next: its histories are put together anew each time."""
    split = matrices.read(home, digest)
    return split, item_degrees(split.train)


def _of_model(model: Model, split: SplitMatrices, item_degrees: np.ndarray) -> Iterator[Ranked]:
    """Every ranked list of one model."""
    protocol, parts = split.protocol, split.parts
    main, tuned_by = PROTOCOLS[protocol].judged_by, PROTOCOLS[protocol].tuned_by
    started = time.perf_counter()
    exposures = {score: Exposure(item_degrees, split.train.shape[0]) for score in model.score_names}
    tested, validation = rank_each(model, parts["test"], exposures), {}
    if "validation" in parts and len(_with_targets(parts["validation"])):
        validation = rank_each(model, parts["validation"])
    logger.info("%s %s: ranked in %.1f s", protocol, model.name, time.perf_counter() - started)
    for score, (of_users, edge_ranks) in tested.items():
        means = metrics.over_users(of_users)
        if validation:
            means[f"validation_{tuned_by}"] = metrics.over_users(validation[score].of_users)[tuned_by]
        bins, cells = [], []
        if protocol == "leave_one_out":
            sides = degrees_of_edges(parts["test"], item_degrees)
            bins = by_degree(edge_ranks, sides)
            cells = metrics.by_both_degrees(edge_ranks, sides["user"], sides["item"])
        logger.info(
            "%s %s/%s: %s %.4f over %d users",
            protocol,
            model.name,
            score,
            main,
            means[main].value,
            means[main].users,
        )
        yield Ranked(model.name, score, of_users, means, exposures[score].metrics(), bins, cells)


class Ranks(NamedTuple):
    """One score's ranks for the users of a part that have a target.

    Attributes:
        of_users: `metrics.user_metrics`.
        of_edges: S of each of their targets.
    """

    of_users: dict[str, np.ndarray]
    of_edges: np.ndarray


def rank(model: Model, score: str, part: Part) -> Ranks:
    """The ranks of the users' targets by one score of a model."""

    def scores(histories: csr_matrix, users: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
        yield score, model.scores(histories, users=users, score=score)

    return _rank(model, scores, part, {})[score]


def rank_each(model: Model, part: Part, exposures: Mapping[str, Exposure] = MappingProxyType({})) -> dict[str, Ranks]:
    """The ranks of the users' targets by every score of a model, in one pass over the users.

    Args:
        exposures: by score; count these users' first recommendations, where they are wanted.
    """
    return _rank(model, lambda histories, users: model.each_score(histories, users=users), part, exposures)


def _rank(model: Model, each: EachScore, part: Part, exposures: Mapping[str, Exposure]) -> dict[str, Ranks]:
    users = _with_targets(part)
    size = model.users_at_once
    found: dict[str, list[Ranks]] = {}
    for start in progress.over(range(0, len(users), size), f"{model.name} ranks for {len(users):,} users"):
        block = users[start : start + size]
        rows = None if part.rows is None else part.rows[block]
        for score, scores in each(part.histories[block], rows):
            ranks = _rank_block(model, score, scores, part, block, exposures.get(score))
            found.setdefault(score, []).append(ranks)
    return {
        score: Ranks(
            {name: np.concatenate([one.of_users[name] for one in blocks]) for name in blocks[0].of_users},
            np.concatenate([one.of_edges for one in blocks]),
        )
        for score, blocks in found.items()
    }


def _rank_block(
    model: Model, score: str, scores: np.ndarray, part: Part, block: np.ndarray, exposure: Exposure | None
) -> Ranks:
    histories, targets = part.histories[block], part.targets[block]
    try:
        with kernel_threads(model.threads):
            ranks = target_ranks(scores, histories, targets)
            if exposure is not None:
                best, _ = top_items(scores, histories.indptr, histories.indices, FIRST)
                exposure.add(best, histories)
    except NotRankable as error:
        user = int(part.users[block[error.row]])
        raise OneclassError(
            f"{model.name}, score {score!r}, user_index {user}: {error.reason}; its items cannot be ranked"
        ) from error
    return Ranks(metrics.user_metrics(ranks), metrics.edge_ranks(ranks))


def _with_targets(part: Part) -> np.ndarray:
    """Positions in the part of the users that have a target."""
    return np.flatnonzero(np.diff(part.targets.indptr))


def item_degrees(train: csr_matrix, chunk: int = 1 << 22) -> np.ndarray:
    """Training edges of each item, counted in chunks, for bincount copies what it counts to int64."""
    degrees = np.zeros(train.shape[1], dtype=np.int64)
    for start in range(0, len(train.indices), chunk):
        degrees += np.bincount(train.indices[start : start + chunk], minlength=len(degrees))
    return degrees


def degrees_of_edges(part: Part, item_degrees: np.ndarray) -> dict[str, np.ndarray]:
    """Training degrees of the user and of the item of every target."""
    user_degrees = np.repeat(np.diff(part.histories.indptr), np.diff(part.targets.indptr))
    return {"user": user_degrees, "item": item_degrees[part.targets.indices]}


def by_degree(edge_ranks: np.ndarray, sides: dict[str, np.ndarray]) -> list[tuple[str, DegreeBin]]:
    """(side, bin): the ranks of the targets by the degrees of `degrees_of_edges`, side by side."""
    return [(side, one) for side, degrees in sides.items() for one in metrics.by_degree(edge_ranks, degrees)]


evaluate_task = stage_task(evaluate, "evaluate {protocol}")
