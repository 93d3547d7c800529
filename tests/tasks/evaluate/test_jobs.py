"""A model's judging cut into calls: which users each is of, and what becomes of the calls after one that fails."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models import registry
from oneclass.models.evaluation.ranking import CannotRank
from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.models.popularity import Popularity
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate import evaluate, jobs
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.matrices import Part, SplitMatrices


@pytest.fixture
def split():
    """Training users, every third of whom is no test user, and unseen ones in the validation part; with orders and negatives."""
    marks = np.random.default_rng(4).random((30, 12))
    train, targets, negatives = (
        csr_matrix((kind).astype(np.float32)) for kind in (marks < 0.4, marks > 0.8, (marks > 0.6) & (marks < 0.7))
    )
    places = np.arange(train.nnz, dtype=np.int32)[::-1].copy()
    train_rows = np.flatnonzero(np.arange(30) % 3).astype(np.int32)
    unseen = Part(with_recency_ranks(train[:9], places[: train.indptr[9]]), targets[:9], np.arange(9, dtype=np.int32))
    part = Part(train[train_rows], targets[train_rows], train_rows + 100, train_rows, negatives[train_rows])
    numbers = [np.arange(size, dtype=np.int32) for size in train.shape]
    return SplitMatrices("leave_one_out", train, *numbers, {"test": part, "validation": unseen}, places=places)


def test_some_users_of_a_part_are_the_rows_of_the_whole_part(split, home):
    digest = matrices.store_split(home, split)
    whole, without = matrices.load_split(home, digest), matrices.load_split(home, digest, histories=False)
    assert without.parts["test"].histories is None
    for name, part in whole.parts.items():
        some, expected = without.users_of(name, 4, 11), range(4, min(11, len(part.users)))
        for kind in ("histories", "targets", "negatives"):
            of_part, found = getattr(part, kind), getattr(some, kind)
            if of_part is None:
                assert found is None
            else:
                assert (found != of_part[list(expected)]).nnz == 0 and found.shape[0] == len(expected)
        assert some.histories.places.tolist() == part.histories[list(expected)].places.tolist()
        assert some.users.tolist() == part.users[4:11].tolist()
        assert some.rows is None if part.rows is None else some.rows.tolist() == part.rows[4:11].tolist()


def test_of_the_calls_after_one_that_fails_none_is_waited_for_and_the_user_is_named(split, home, monkeypatch):
    """Places 10 to 14 of the test part are the third call's; other models go on. Here one call follows the other."""
    home = replace(home, limits=replace(home.limits, threads=1))
    monkeypatch.setattr(jobs, "USERS_PER_BATCH", 1)
    monkeypatch.setattr(jobs, "users_per_block", lambda *numbers: 5)
    asked, whole = [], Popularity._scores

    class Odd(Popularity):
        name = "odd"

        def _scores(self, histories, users, score):
            asked.append(users.tolist())
            scores = whole(self, histories, users, score)
            scores[users == split.parts["test"].rows[12]] = np.nan
            return scores

    monkeypatch.setitem(registry.MODELS, "odd", Odd)
    split = replace(split, protocol="given", parts={"test": split.parts["test"]})
    digest = matrices.store_split(home, split)
    for model in (Odd, Popularity):
        fits.store_fit(home, model().fit(split.train), "digest", key="k", matrices="m", seconds=1, peak_bytes=1)
    found = evaluate(home, "run", "given", digest, {"odd": "digest", "popularity": "digest"})
    user = split.parts["test"].users[12]
    assert found.failed == {"odd": f"odd, score 'score', user_index {user}: a score is NaN; its items cannot be ranked"}
    assert len(asked) == 3
    with pytest.raises(OneclassError) as error:
        evaluate(home, "alone", "given", digest, {"odd": "digest"})
    assert isinstance(error.value.__cause__, CannotRank)
