"""The evaluation of one model in batches of users for an executor: each ranks the targets and evaluates `like`.

Batches depend only on the number of users, each is made of whole blocks of scores, and results are joined in their
order. So nothing depends on where batches are executed, or on how many at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cachetools.func import lru_cache

from oneclass.models.base import Model
from oneclass.models.evaluation.beyond_accuracy import Exposure, ExposureCounts
from oneclass.models.memory_estimates import LogSize, is_serial, scoring_bytes
from oneclass.models.negatives.distributions import NegativeDistribution
from oneclass.models.registry import MODELS
from oneclass.tasks.cluster import Executor, imap
from oneclass.tasks.evaluate import calibration
from oneclass.tasks.evaluate.ranking import (
    TargetRankMetrics,
    rank_targets_by_score,
    users_with_targets,
)
from oneclass.tasks.orchestration import progress
from oneclass.tasks.protocols import is_fold
from oneclass.tasks.stores import fits, matrices, resources
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices

USERS_PER_BATCH = 1 << 11  # if blocks of scores are smaller


class EvalBatch(NamedTuple):
    """The result for a batch of users of a part.

    Attributes:
        ranks: by score; of the test part, with the targets' `items` as curated `item_index`.
        shown: exposure of their top recommendations, by score; only of the test part, as the fields below.
        sample: the sample to calibrate `like`; None without `like`, and on protocols other than leave_one_out.
        pairs: explicit feedback; None without `like` or without explicit negatives.
    """

    ranks: dict[str, TargetRankMetrics]
    shown: dict[str, ExposureCounts]
    sample: calibration.CalibrationSample | None
    pairs: calibration.ExplicitPairs | None


class PendingEvaluation(NamedTuple):
    """The submitted batches of one model: (part, number of users) of each, and their results in this order."""

    parts: list[tuple[str, int]]
    results: Iterator[EvalBatch]


class EvaluatedFit(NamedTuple):
    """A stored fit to evaluate.

    Attributes:
        matrices, digest: of the split that it was fitted on, and its own.
        further: names of further metrics at any k, of the test part.
    """

    matrices: str
    model: str
    digest: str
    further: Sequence[str] = ()


def submit_evaluation(executor: Executor, home: Home, fitted: EvaluatedFit, split: SplitMatrices) -> PendingEvaluation:
    """Submit one model's evaluation on the test part, and its ranking of the validation part if that has a target.

    Args:
        split: that of the fit; its parts may lack the histories.
    """
    kind, fit = MODELS[fitted.model], fits.find_fit(home, fitted.model, fitted.digest, checked=False)
    items, scores = split.train.shape[1], len(kind.score_names)
    at_once, _ = _batch_size(kind, split)
    parts, calls, memory = [], [], []
    for part, first, end in _iterate_batches(kind, split):
        calls.append((fitted, part, first, end))
        parts.append((part, end - first))
        memory.append(scoring_bytes(min(end - first, at_once), items, scores, fit.saved_bytes if fit else 0))
    label, serial = f"{fitted.model}: evaluate on {split.protocol}", is_serial(items, at_once)
    return PendingEvaluation(
        parts, imap(executor, evaluate_batch, home, calls, label=label, memory=memory, serial=serial)
    )


def evaluate_in_process(model: Model, split: SplitMatrices, further: Sequence[str]) -> PendingEvaluation:
    """Rank a split's users in this process, in the same batches; each is ranked when its result is read."""
    batches = list(_iterate_batches(type(model), split))
    results = (_rank_users(model, split, *batch, further) for batch in batches)
    return PendingEvaluation([(part, end - first) for part, first, end in batches], results)


def _iterate_batches(kind: type[Model], split: SplitMatrices) -> Iterator[tuple[str, int, int]]:
    """Yield (part, first user, end) of each batch."""
    _, step = _batch_size(kind, split)
    for part in ("test", "validation"):
        if part not in split.parts or not len(users_with_targets(split.parts[part])):
            continue
        if part == "validation" and is_fold(split.protocol):
            continue  # its users are those of the test part
        users = len(split.parts[part].users)
        for first in range(0, users, step):
            yield part, first, min(first + step, users)


def _batch_size(kind: type[Model], split: SplitMatrices) -> tuple[int, int]:
    """Return how many users a model scores at a time, and the users of a batch, a multiple of it."""
    users, items = split.train.shape
    cost = kind.estimate_cost(kind.Settings(), LogSize(users, items, split.train.nnz))
    at_once = cost.users_per_block(items)
    return at_once, at_once * max(1, USERS_PER_BATCH // at_once)


def gather_batches(name: str, pending: PendingEvaluation) -> dict[str, list[EvalBatch]]:
    """Collect a model's batches by part, in their order, reporting progress."""
    batches: dict[str, list[EvalBatch]] = {}
    users = sum(count for _, count in pending.parts)
    for part, _ in progress.iterate_with_progress(
        pending.parts, f"{name} ranks for {users:,} users", lambda batch: batch[1]
    ):
        batches.setdefault(part, []).append(next(pending.results))
    return batches


def evaluate_batch(home: Home, fitted: EvaluatedFit, part: str, first: int, end: int) -> EvalBatch:
    """Evaluate one stored model for the users [first, end) of a part.

    Raises:
        OneclassError: a user's items cannot be ranked, or memory is short.
    """
    with resources.guard_model_memory(f"evaluate: {fitted.model}"):
        split = load_cached_split(home, fitted.matrices)
        model, negative_distribution = _load_model_and_distribution(home, fitted)
        batch = _rank_users(model, split, part, first, end, fitted.further)
        if part != "test":
            return batch
        users, whole, sample, pairs = split.users_of(part, first, end), split.parts[part], None, None
        if split.protocol == "leave_one_out":
            sample = calibration.sample_likes(model, negative_distribution, split.histories, users)
        if calibration.has_both_classes(whole):
            pairs = calibration.score_explicit_pairs(model, users)
        return batch._replace(sample=sample, pairs=pairs)


def _rank_users(
    model: Model, split: SplitMatrices, part: str, first: int, end: int, further: Sequence[str]
) -> EvalBatch:
    """Rank all items for the users [first, end) of a part."""
    users = split.users_of(part, first, end)
    if part != "test":
        return EvalBatch(rank_targets_by_score(model, users, on_progress=False), {}, None, None)
    empty = Exposure(model.item_degrees, split.train.shape[0])
    exposures = {score: empty.copy_empty() for score in model.score_names}
    ranks = rank_targets_by_score(model, users, exposures, further, on_progress=False)
    ranks = {score: _name_items(of_score, split) for score, of_score in ranks.items()}
    return EvalBatch(ranks, {score: exposure.shown for score, exposure in exposures.items()}, None, None)


def _name_items(ranks: TargetRankMetrics, split: SplitMatrices) -> TargetRankMetrics:
    """Name targets by curated `item_index`, and leave out the heads of the lists, which are counted already."""
    targets = ranks.targets
    heads = replace(targets.ranks, first=targets.ranks.first[:, :0])
    return ranks._replace(targets=targets._replace(items=split.items[targets.items], ranks=heads))


@lru_cache(maxsize=1)
def load_cached_split(home: Home, digest: str) -> SplitMatrices:
    """Load a split without the histories of its parts, cached between calls."""
    return matrices.load_split(home, digest, histories=False)


@lru_cache(maxsize=1)
def _load_model_and_distribution(home: Home, fitted: EvaluatedFit) -> tuple[Model, NegativeDistribution | None]:
    """Load a model and, on leave_one_out, the distribution of its negatives, cached between calls."""
    model, split = fits.load_fit(home, fitted.model, fitted.digest), load_cached_split(home, fitted.matrices)
    distribution = model.negative_distribution() if split.protocol == "leave_one_out" else None
    return model, distribution and distribution.with_statistics(split.train)


def clear_caches() -> None:
    """Clear this process's caches of splits and models."""
    load_cached_split.cache_clear()
    _load_model_and_distribution.cache_clear()
