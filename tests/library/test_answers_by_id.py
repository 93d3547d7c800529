"""A model that was fitted on ids answers with the ids of what its arrays answer."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from oneclass import SLIM, Interactions, ItemKNN, NotFittedError, PairedSymbols
from oneclass.tasks.recommend import UnknownItems

RNG = np.random.default_rng(4)
PAIRS = sorted({(f"u{RNG.integers(30)}", f"i{RNG.integers(12):02}") for _ in range(200)})
LIKES = Interactions(PAIRS)


def fit_on_matrix(model):
    """The same model, fitted on the matrix."""
    return model.clone().fit(csr_matrix(LIKES.matrix))


@pytest.fixture(scope="module")
def knn():
    return ItemKNN().fit(LIKES)


def rows_of(frame, *columns):
    return list(frame.select(columns).iter_rows())


def expected_rows(user_ids, ids, scores):
    return [
        (user, rank, LIKES.item_ids[int(item)], score)
        for user, items, values in zip(user_ids, ids, scores, strict=True)
        for rank, (item, score) in enumerate(zip(items, values, strict=True), 1)
        if item >= 0
    ]


def test_users_of_the_fit_get_what_the_arrays_say(knn):
    users = ["u7", "u0", "u21"]
    rows = np.array([LIKES.user_ids.to_list().index(user) for user in users])
    expected = expected_rows(users, *fit_on_matrix(knn).recommend(csr_matrix(LIKES.matrix)[rows], 4, users=rows))
    frame = knn.recommend(users=users, n=4)
    assert rows_of(frame, "user_id", "rank", "item_id", "score") == expected
    assert frame.columns == ["user_id", "rank", "item_id", "score"]
    seen = set(PAIRS)
    assert not any(pair in seen for pair in rows_of(frame, "user_id", "item_id"))
    assert rows_of(knn.recommend(users="u7", n=4), "item_id") == rows_of(frame.filter(user_id="u7"), "item_id")
    assert knn.recommend(n=1)["user_id"].to_list() == LIKES.user_ids.to_list()


def test_blocks_of_users_change_nothing(knn, monkeypatch):
    whole = knn.recommend(n=3)
    monkeypatch.setattr(ItemKNN, "users_at_once", 7)
    assert knn.recommend(n=3).equals(whole)


def test_histories_may_be_lists_a_mapping_or_a_frame(knn):
    dense = np.zeros((2, 12), dtype=np.float32)
    dense[0, [LIKES.item_ids.to_list().index(item) for item in ("i03", "i05")]] = 1
    dense[1, LIKES.item_ids.to_list().index("i08")] = 1
    expected = expected_rows(["x", "y"], *fit_on_matrix(knn).recommend(csr_matrix(dense), 3))
    mapping = knn.recommend({"x": ["i03", "i05"], "y": ["i08"]}, n=3)
    assert rows_of(mapping, "user_id", "rank", "item_id", "score") == expected
    frame = pl.DataFrame({"user_id": ["x", "x", "y"], "item_id": ["i03", "i05", "i08"]})
    assert knn.recommend(frame, n=3).equals(mapping)
    lists = knn.recommend([["i03", "i05"], ["i08"]], n=3)
    assert lists["user_id"].to_list() == [0] * 3 + [1] * 3 and lists["item_id"].equals(mapping["item_id"])
    assert knn.recommend(["i03", "i05"], n=3)["item_id"].to_list() == mapping["item_id"].to_list()[:3]


def test_an_empty_history_gets_popularity_and_unknown_items_are_left_out_with_a_warning(knn):
    degrees = {item: sum(pair[1] == item for pair in PAIRS) for item in LIKES.item_ids}
    best = sorted(degrees, key=lambda item: (-degrees[item], item))[:2]
    for histories, users in (([[]], [0]), ([], [0]), ({"x": []}, ["x"]), ([[], []], [0, 1])):
        popular = knn.recommend(histories, n=2)
        assert popular["item_id"].to_list() == best * len(users)
        assert popular["user_id"].unique(maintain_order=True).to_list() == users
    with pytest.warns(UnknownItems, match="histories: not known in the fit, left out: nope, no") as warned:
        assert knn.recommend([["nope", "no"], []], n=2)["item_id"].to_list() == best * 2
    assert warned[0].filename == __file__
    with pytest.warns(UnknownItems, match="left out: nope"):
        assert knn.recommend([["i03", "nope"]], n=2).equals(knn.recommend([["i03"]], n=2))


WRONG_HISTORIES = {
    "numbers for texts": ([[3]], ValueError, "histories: 3 is a number, and an id of .*, 'i00', is a text"),
    "users of two types": ({"x": ["i03"], 1: ["i03"]}, ValueError, "Int64: 1 .* 'ids of users'; give"),
    "items beside lists": (["i03", ["i05"]], TypeError, "user 0 has 'i03'; give a list"),
    "one item of a user": ({"x": "i03"}, TypeError, "user 'x' has 'i03'; give a list of items"),
    "a number": (5, TypeError, "a int; give a frame"),
    "no user": ({}, ValueError, "no user to answer"),
}


@pytest.mark.parametrize("wrong", WRONG_HISTORIES)
def test_wrong_histories_are_refused_with_what_was_given(wrong, knn):
    histories, error, message = WRONG_HISTORIES[wrong]
    with pytest.raises(error, match=message):
        knn.recommend(histories)


def test_similar_items_by_id(knn):
    columns = np.array([3, 8])
    ids, values = fit_on_matrix(knn).similar_items(columns, 2)
    frame = knn.similar_items(["i03", "i08"], n=2)
    expected = expected_rows(["i03", "i08"], ids, values)
    assert rows_of(frame, "item_id", "rank", "similar_item_id", "similarity") == expected


def test_like_probabilities_stand_beside_scores_and_alone():
    model = PairedSymbols(factors=4, iterations=3).fit(LIKES)
    frame = model.recommend(users=["u3"], n=2)
    like = model.like(users=["u3"], items=frame["item_id"])
    assert like["item_id"].equals(frame["item_id"])
    for name in ("like_mean", "like_sd"):
        np.testing.assert_allclose(like[name], frame[name], rtol=1e-4)
    mean, deviation = model.like(csr_matrix(LIKES.matrix))
    assert len(model.like(["i03"])) == 12 and mean.shape == deviation.shape == LIKES.matrix.shape
    assert ItemKNN().fit(LIKES).like(users=["u3"]) is None


def test_a_saved_model_answers_with_the_same_ids(knn, tmp_path):
    knn.save(tmp_path / "model")
    assert ItemKNN.load(tmp_path / "model").recommend(users=["u7"], n=4).equals(knn.recommend(users=["u7"], n=4))


def test_attributes_reach_the_fit():
    items = pl.DataFrame({"item_id": [f"i{number:02}" for number in range(12)], "kind": ["a", "b", "c"] * 4})
    model = SLIM().fit(Interactions(PAIRS, items=items))
    np.testing.assert_array_equal(model.item_features.toarray(), np.tile(np.eye(3), (4, 1)))


def test_the_arrays_stay_for_a_matrix(knn):
    histories, other = csr_matrix(LIKES.matrix)[:2], fit_on_matrix(knn)
    np.testing.assert_array_equal(knn.recommend(histories, 3), other.recommend(histories, 3))
    assert other.ids is None and isinstance(other.similar_items(np.array([1]), 2), tuple)


def test_mistakes_are_refused(knn):
    with pytest.raises(ValueError, match="user 'nobody': 1 of 2 not in the .*; give their likes as histories"):
        knn.recommend(users=["u1", "nobody"])
    with pytest.raises(ValueError, match="item 'nothing'"):
        knn.similar_items("nothing")
    with pytest.raises(ValueError, match="users of the fit, or the histories"):
        knn.recommend(["i03"], users=["u1"])
    with pytest.raises(NotFittedError):
        ItemKNN().recommend(users=["u1"])
