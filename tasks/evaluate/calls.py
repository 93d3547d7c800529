"""The judging of one model, cut into calls for an executor: each ranks for some users of a part, and judges `like` for them.

Calls are cut by the number of users alone, each into whole blocks of scores, and what they found is put together in their
order. So nothing depends on where they are made, nor on how many are made at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from models.base import Model
from models.catalogue import MODELS
from models.evaluation.beyond_accuracy import Exposure, Shown
from models.generator.density_ratio import Truth
from models.memory import scoring_bytes, users_at_once
from models.negatives.laws import NegativeLaw
from tasks import machine
from tasks.cluster import Executor, imap, lru_cache_last
from tasks.evaluate import considered, like
from tasks.evaluate.ranks import Ranks, rank_each, with_targets
from tasks.orchestration import progress
from tasks.stores import fits, matrices
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices

USERS_OF_A_CALL = 1 << 11  # where blocks of scores are smaller


class Judged(NamedTuple):
    """What a call found for the users of a part.

    Attributes:
        ranks: by score.
        shown: their first recommendations, by score; of the test part alone, as what follows.
        sample: to judge `like` by; None without `like`, and on another protocol than leave_one_out.
        pairs: that were considered; None without `like`, and where nothing was kept to judge by.
    """

    ranks: dict[str, Ranks]
    shown: dict[str, Shown]
    sample: like.Sample | None
    pairs: considered.Pairs | None


class PendingEvaluation(NamedTuple):
    """The calls that judge one model: how many users each has, of which part, and their results in this order."""

    parts: list[tuple[str, int]]
    results: Iterator[Judged]


def submit_evaluation(
    executor: Executor,
    home: Home,
    matrices_digest: str,
    split: SplitMatrices,
    name: str,
    digest: str,
    truth: Truth | None,
) -> PendingEvaluation:
    """Submit one model's evaluation on the test part, and its ranking of the validation part if it has users with a target.

    Args:
        split: of that digest; its parts may lack the histories.
        name, digest: of the fit.
        truth: of the rows of `train`, where it is known.
    """
    kind, saved = MODELS[name], fits.saved_bytes(home, name, digest)
    items, scores = split.train.shape[1], len(kind.score_names)
    matrices = kind.matrices_on(items, split.train.nnz)
    at_once = users_at_once(items, matrices, kind.block_bytes)
    step = at_once * max(1, USERS_OF_A_CALL // at_once)
    parts, asked, memory = [], [], []
    for part in ("test", "validation"):
        if part not in split.parts or not len(with_targets(split.parts[part])):
            continue
        rows, users = split.parts[part].rows, len(split.parts[part].users)
        for first in range(0, users, step):
            end = min(first + step, users)
            of_these = truth.of_users(rows[first:end]) if truth and part == "test" else None
            asked.append((matrices_digest, name, digest, part, first, end, of_these))
            parts.append((part, end - first))
            memory.append(scoring_bytes(min(end - first, at_once), items, scores, saved))
    label = f"{name}: judge on {split.protocol}"
    results = imap(executor, judged, home, asked, label=label, memory=memory, serial=matrices > 0)
    return PendingEvaluation(parts, results)


def collected(name: str, pending: PendingEvaluation) -> dict[str, list[Judged]]:
    """The answers of a model's calls by part, in their order; the progress is told."""
    found: dict[str, list[Judged]] = {}
    users = sum(count for _, count in pending.parts)
    for part, _ in progress.over(pending.parts, f"{name} ranks for {users:,} users", lambda of_call: of_call[1]):
        found.setdefault(part, []).append(next(pending.results))
    return found


def judged(
    home: Home, matrices_digest: str, name: str, digest: str, part: str, first: int, end: int, truth: Truth | None
) -> Judged:
    """One model judged for the users [first, end) of a part, by what the stores have.

    Args:
        truth: of these users, where it is known.

    Raises:
        OneclassError: a user's items cannot be ranked, or memory is short.
    """
    with machine.memory_for_model(f"evaluate: {name}"):
        split = split_of(home, matrices_digest)
        model, law = _model_and_law(home, matrices_digest, name, digest)
        users, whole = split.users_of(part, first, end), split.parts[part]
        if part != "test":
            return Judged(rank_each(model, users, told=False), {}, None, None)
        exposure = Exposure(model.item_degrees, split.train.shape[0])
        exposures = {score: exposure.anew() for score in model.score_names}
        ranks = rank_each(model, users, exposures, told=False)
        sample = pairs = None
        if split.protocol == "leave_one_out":
            against = like.held_against_truth(first, len(users.users), len(whole.users))
            sample = like.sampled(model, law, split.train, users, truth, against)
        if considered.has_both(whole):
            pairs = considered.paired(model, users, truth)
        return Judged(ranks, {score: one.shown for score, one in exposures.items()}, sample, pairs)


@lru_cache_last
def split_of(home: Home, digest: str) -> SplitMatrices:
    """A split without the histories of its parts, kept from one call to the next."""
    return matrices.read(home, digest, histories=False)


@lru_cache_last
def _model_and_law(home: Home, matrices_digest: str, name: str, digest: str) -> tuple[Model, NegativeLaw | None]:
    """A model and, on leave_one_out, the law of its negatives, kept from one call to the next."""
    model, split = fits.load(home, name, digest), split_of(home, matrices_digest)
    law = model.negative_law() if split.protocol == "leave_one_out" else None
    return model, law and law.counted(split.train)


def let_go() -> None:
    """Forget what this process has kept from its calls."""
    split_of.cache_clear()
    _model_and_law.cache_clear()
