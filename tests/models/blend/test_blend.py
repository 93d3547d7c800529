"""The blend against its formula, and its weights against a mixture that is planted."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.blend import Blend, BlendSettings, Candidates, search_weights, weight_search
from oneclass.models.blend.model import normalize_scores
from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import FitOptions
from oneclass.models.mrf.dense import MRFDense, MRFDenseSettings
from oneclass.models.wmf.model import WMF, WMFSettings

DENSE, FACTORS = MRFDenseSettings(l2=2.0), WMFSettings(factors=8, iterations=4)


def blend_settings(*weights):
    parts = [("mrf_dense", DENSE), ("wmf", FACTORS)]
    return BlendSettings(
        components=[
            {"model": model, "weight": weight, "settings": of.model_dump()}
            for (model, of), weight in zip(parts, weights, strict=True)
        ]
    )


def naive_scale(scores, histories):
    """The formula, one user at a time."""
    found = np.empty_like(scores, dtype=np.float64)
    for user, row in enumerate(scores):
        left = sorted(np.delete(row.astype(np.float64), histories[user].indices), reverse=True)
        low, high = left[:100][-1], np.mean(left[:10])
        found[user] = (row - low) / (high - low)
    return found


@pytest.mark.parametrize("items", [30, 250, 700])
def test_the_scale_is_as_written(items):
    generator = np.random.default_rng(items)
    scores = generator.normal(3, 5, (40, items)).astype(np.float32)
    histories = csr_matrix(generator.random((40, items)) < 0.1)
    expected = naive_scale(scores, histories)
    np.testing.assert_allclose(normalize_scores(scores.copy(), histories), expected, rtol=1e-4, atol=1e-4)


def test_users_without_a_choice_keep_finite_scores():
    scores = np.array([[2, 2, 2], [1, 2, 3], [5, 1, 1]], dtype=np.float32)
    histories = csr_matrix(np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1]]))  # all equal, none left, one left
    np.testing.assert_array_equal(normalize_scores(scores, histories), [[0, 0, 0], [1, 2, 3], [0, -4, -4]])


def test_the_score_is_the_weighted_sum_of_the_members_own_fits(long_tailed):
    model = Blend(blend_settings(1.5, 0.5), seed=4).fit(long_tailed)
    rows = np.arange(20)
    histories = long_tailed[rows]
    for users in (None, rows):
        parts = [
            naive_scale(kind(of, seed=4).fit(long_tailed).scores(histories, users=users), histories)
            for kind, of in ((MRFDense, DENSE), (WMF, FACTORS))
        ]
        expected = 1.5 * parts[0] + 0.5 * parts[1]
        np.testing.assert_allclose(model.scores(histories, users=users), expected, rtol=1e-3, atol=1e-3)


def test_a_fit_that_is_at_hand_is_taken(long_tailed):
    kept = MRFDense(DENSE, seed=4).fit(long_tailed)
    asked = []

    def member(name, of):
        asked.append((name, of))
        return kept if name == "mrf_dense" else None

    model = Blend(blend_settings(1, 1), seed=4).fit(long_tailed, FitOptions(load_component=member))
    assert asked == [("mrf_dense", DENSE), ("wmf", FACTORS)] and model.components[0] is kept
    alone = Blend(blend_settings(1, 1), seed=4).fit(long_tailed)
    np.testing.assert_array_equal(model.scores(long_tailed[:9]), alone.scores(long_tailed[:9]))


def test_contributions_are_those_of_the_members_that_have_them(long_tailed):
    model, history = Blend(blend_settings(2, 1), seed=4).fit(long_tailed), long_tailed[0]
    dense = model.components[0]
    scores = dense.scores(history)
    moved = normalize_scores(scores.copy(), history)[0]
    items = np.flatnonzero(dense.contributions(history, np.arange(40)).any(axis=0))
    constant = 2 * moved[items] - model.contributions(history, items).sum(axis=0)
    np.testing.assert_allclose(constant, constant[0], atol=1e-4)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([], "at least 1"),
        ([{"model": "wmf"}, {"model": "blend"}], "blend is no model that blend can be made of"),
        ([{"model": "wmf"}, {"model": "wfm"}], "wfm is no model"),
        ([{"model": "wmf"}, {"model": "slim", "score": "like"}], "slim has no score like; it has score"),
        ([{"model": "wmf"}, {"model": "slim", "settings": {"gone": 1}}], "Extra inputs"),
    ],
)
def test_members_that_cannot_be_are_refused(components, message):
    with pytest.raises(ValidationError, match=message):
        BlendSettings(components=components)


def plant_mixture(users, items, truth, seed, noise=0.0):
    """Scores of three models, and targets that are the best items by the mixture `truth` of them, on the scale."""
    generator = np.random.default_rng(seed)
    histories = csr_matrix(generator.random((users, items)) < 0.02)
    raw = generator.gumbel(size=(len(truth), users, items)).astype(np.float32)
    scaled = np.stack([normalize_scores(one, histories) for one in raw])
    mixture = np.tensordot(np.array(truth), scaled, 1) + noise * generator.normal(size=(users, items))
    mixture[histories.toarray()] = -np.inf
    targets = np.zeros((users, items), dtype=np.float32)
    np.put_along_axis(targets, np.argsort(-mixture, axis=1)[:, :5], 1, axis=1)
    return scaled, histories, csr_matrix(targets)


def test_a_planted_mixture_is_recovered():
    scores, histories, targets = plant_mixture(150, 300, (1.0, 0.5, 0.0), seed=1)
    found = search_weights(Candidates.from_blocks([(scores, histories, targets)]), folds=np.arange(150) % 5)
    first, second, third = found.weights
    assert second / first == pytest.approx(0.5, abs=0.26) and third <= 0.125 * first
    assert found.cross_validated.mean() == found.value.mean() == 1.0
    assert found.best == 0 and found.alone.mean(axis=1).max() < 0.95


def test_a_model_that_adds_nothing_gets_no_weight():
    scores, histories, targets = plant_mixture(200, 300, (1.0, 0.0), seed=3)
    found = search_weights(Candidates.from_blocks([(scores, histories, targets)]), folds=np.arange(200) % 5)
    assert found.weights == (1.0, 0.0)
    np.testing.assert_array_equal(found.cross_validated, found.alone[0])


@pytest.mark.parametrize("cut", [20, 100])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.75, 1.5)])
@pytest.mark.parametrize("items", [250, 400])
def test_metrics_of_candidates_are_those_of_whole_rankings(items, weights, cut):
    """In blocks or whole; at 200 items of each model's list nothing that could be among the first 100 is left out."""
    scores, histories, targets = plant_mixture(30, items, (0.6, 1.0), seed=5, noise=0.3)
    blocks = [(scores[:, at], histories[at], targets[at]) for at in (slice(0, 13), slice(13, 30))]
    whole = np.tensordot(np.array(weights, dtype=np.float32), scores, 1).astype(np.float32)
    expected = compute_user_metrics(rank_targets(whole, histories, targets))
    found = Candidates.from_blocks(blocks, cut)
    np.testing.assert_allclose(found.ndcg(weights), expected[f"ndcg@{cut}"], atol=1e-9)
    if items <= weight_search.MAX_MEAN_RANK_ITEMS:
        np.testing.assert_allclose(found.mean_rank(weights), expected["mean_rank"], atol=1e-9)


def test_of_weights_that_find_the_same_head_those_with_the_better_tail_are_taken():
    """Two models find a target each and put the third one last; one more lifts it, though not among the first
    twenty.
    """
    generator, users, items = np.random.default_rng(6), 60, 400
    first, second, third, *decoys = np.argsort(generator.random((users, items)), axis=1).T[:103]
    everybody = np.arange(users)
    scores = np.zeros((3, users, items), dtype=np.float32)
    scores[:2] = 1e-6 * generator.random((2, users, items))
    scores[0, everybody, first] = scores[1, everybody, second] = 5
    scores[:2, everybody, third] = -1
    scores[2, everybody, np.array(decoys)], scores[2, everybody, third] = 20, 10
    scores[2, everybody, first] = scores[2, everybody, second] = 20
    targets = csr_matrix((np.ones(3 * users), (np.tile(everybody, 3), np.r_[first, second, third])), (users, items))
    candidates = Candidates.from_blocks([(scores, csr_matrix((users, items)), targets)], 20)
    found = search_weights(candidates, folds=np.arange(users) % 5)
    head = (found.weights[0], found.weights[1], 0.0)
    assert min(found.weights) > 0 and found.value.mean() == candidates.ndcg(head).mean()
    assert candidates.mean_rank(found.weights).mean() > candidates.mean_rank(head).mean() + 0.1


def test_cross_validation_does_not_judge_users_by_weights_that_they_chose():
    """Of scores that say nothing of the targets, the weights chosen look better than they are; crossed, they do not."""
    generator = np.random.default_rng(8)
    histories = csr_matrix((60, 200), dtype=np.float32)
    targets = csr_matrix((generator.random((60, 200)) < 0.03).astype(np.float32))
    targets = targets + csr_matrix((np.ones(60), (np.arange(60), np.arange(60))), shape=(60, 200))
    scores = np.stack(
        [normalize_scores(generator.normal(size=(60, 200)).astype(np.float32), histories) for _ in range(5)]
    )
    folds = generator.permutation(60) % 5
    candidates = Candidates.from_blocks([(scores, histories, targets.tocsr())])
    found = search_weights(candidates, folds)
    assert found.value.mean() > found.cross_validated.mean()
    for fold, weights in enumerate(found.of_others):
        np.testing.assert_array_equal(found.cross_validated[folds == fold], candidates.ndcg(weights)[folds == fold])
        others = Candidates.from_blocks([(scores[:, folds != fold], histories[folds != fold], targets[folds != fold])])
        assert weights == search_weights(others, np.arange(np.sum(folds != fold)) % 5).weights
