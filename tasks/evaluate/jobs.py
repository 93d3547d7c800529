"""The judging of one model, cut into calls for an executor: each ranks for some users of a part, and judges `like` for them.

Calls are cut by the number of users alone, each into whole blocks of scores, and what they found is put together in their
order. So nothing depends on where they are made, nor on how many are made at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oneclass.models.base import Model
from oneclass.models.evaluation.beyond_accuracy import Exposure, ExposureCounts
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.models.memory_estimates import scoring_bytes, users_per_block
from oneclass.models.negatives.distributions import NegativeDistribution
from oneclass.models.registry import MODELS
from oneclass.tasks import memory_errors
from oneclass.tasks.cluster import Executor, imap, lru_cache_last
from oneclass.tasks.evaluate import calibration, explicit_negatives
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_targets_by_score, users_with_targets
from oneclass.tasks.orchestration import progress
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices

USERS_PER_BATCH = 1 << 11  # where blocks of scores are smaller


class EvalBatch(NamedTuple):
    """What a call found for the users of a part.

    Attributes:
        ranks: by score.
        shown: their first recommendations, by score; of the test part alone, as what follows.
        sample: to judge `like` by; None without `like`, and on another protocol than leave_one_out.
        pairs: that were considered; None without `like`, and where nothing was kept to judge by.
    """

    ranks: dict[str, TargetRankMetrics]
    shown: dict[str, ExposureCounts]
    sample: calibration.CalibrationSample | None
    pairs: explicit_negatives.ExplicitPairs | None


class PendingEvaluation(NamedTuple):
    """The calls that judge one model: how many users each has, of which part, and their results in this order."""

    parts: list[tuple[str, int]]
    results: Iterator[EvalBatch]


def submit_evaluation(
    executor: Executor,
    home: Home,
    matrices_digest: str,
    split: SplitMatrices,
    name: str,
    digest: str,
    truth: GroundTruth | None,
) -> PendingEvaluation:
    """Submit one model's evaluation on the test part, and its ranking of the validation part if it has users with a target.

    Args:
        split: of that digest; its parts may lack the histories.
        name, digest: of the fit.
        truth: of the rows of `train`, where it is known.
    """
    kind, saved = MODELS[name], fits.load_saved_bytes(home, name, digest)
    items, scores = split.train.shape[1], len(kind.score_names)
    matrices = kind.matrices_on(items, split.train.nnz)
    at_once = users_per_block(items, matrices, kind.block_bytes)
    step = at_once * max(1, USERS_PER_BATCH // at_once)
    parts, asked, memory = [], [], []
    for part in ("test", "validation"):
        if part not in split.parts or not len(users_with_targets(split.parts[part])):
            continue
        rows, users = split.parts[part].rows, len(split.parts[part].users)
        for first in range(0, users, step):
            end = min(first + step, users)
            of_these = truth.of_users(rows[first:end]) if truth and part == "test" and rows is not None else None
            asked.append((matrices_digest, name, digest, part, first, end, of_these))
            parts.append((part, end - first))
            memory.append(scoring_bytes(min(end - first, at_once), items, scores, saved))
    label = f"{name}: judge on {split.protocol}"
    results = imap(executor, evaluate_batch, home, asked, label=label, memory=memory, serial=matrices > 0)
    return PendingEvaluation(parts, results)


def gather_batches(name: str, pending: PendingEvaluation) -> dict[str, list[EvalBatch]]:
    """The answers of a model's calls by part, in their order; the progress is told."""
    found: dict[str, list[EvalBatch]] = {}
    users = sum(count for _, count in pending.parts)
    for part, _ in progress.iterate_with_progress(
        pending.parts, f"{name} ranks for {users:,} users", lambda of_call: of_call[1]
    ):
        found.setdefault(part, []).append(next(pending.results))
    return found


def evaluate_batch(
    home: Home, matrices_digest: str, name: str, digest: str, part: str, first: int, end: int, truth: GroundTruth | None
) -> EvalBatch:
    """One model judged for the users [first, end) of a part, by what the stores have.

    Args:
        truth: of these users, where it is known.

    Raises:
        OneclassError: a user's items cannot be ranked, or memory is short.
    """
    with memory_errors.guard_model_memory(f"evaluate: {name}"):
        split = load_cached_split(home, matrices_digest)
        model, law = _load_model_and_sampler(home, matrices_digest, name, digest)
        users, whole = split.users_of(part, first, end), split.parts[part]
        if part != "test":
            return EvalBatch(rank_targets_by_score(model, users, on_progress=False), {}, None, None)
        exposure = Exposure(model.item_degrees, split.train.shape[0])
        exposures = {score: exposure.copy_empty() for score in model.score_names}
        ranks = rank_targets_by_score(model, users, exposures, on_progress=False)
        sample = pairs = None
        if split.protocol == "leave_one_out":
            against = calibration.select_truth_users(first, len(users.users), len(whole.users))
            sample = calibration.sample_likes(model, law, split.train, users, truth, against)
        if explicit_negatives._has_both_classes(whole):
            pairs = explicit_negatives.score_explicit_pairs(model, users, truth)
        return EvalBatch(ranks, {score: one.shown for score, one in exposures.items()}, sample, pairs)


@lru_cache_last
def load_cached_split(home: Home, digest: str) -> SplitMatrices:
    """A split without the histories of its parts, kept from one call to the next."""
    return matrices.load_split(home, digest, histories=False)


@lru_cache_last
def _load_model_and_sampler(
    home: Home, matrices_digest: str, name: str, digest: str
) -> tuple[Model, NegativeDistribution | None]:
    """A model and, on leave_one_out, the law of its negatives, kept from one call to the next."""
    model, split = fits.load_fit(home, name, digest), load_cached_split(home, matrices_digest)
    law = model.negative_distribution() if split.protocol == "leave_one_out" else None
    return model, law and law.counted(split.train)


def clear_caches() -> None:
    """Forget what this process has kept from its calls."""
    load_cached_split.cache_clear()
    _load_model_and_sampler.cache_clear()
