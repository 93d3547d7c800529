"""Off-policy estimates and the propensities of Thompson lists, against sums, closed forms and simulated policies."""

import numpy as np
import polars as pl
import pytest

from oneclass.models.evaluation.off_policy import OverlapTooSmallError, off_policy
from oneclass.models.exploration import draw_scores, place_probabilities

ITEMS, K, LISTS = 12, 3, 600


def simulate_lists(seed, *, users=True):
    """Thompson lists of K of ITEMS items, reactions by hidden probabilities, and a greedy target with its value."""
    random = np.random.default_rng(seed)
    means = random.uniform(0.1, 0.6, (LISTS, ITEMS))
    deviations = random.uniform(0.1, 0.3, (LISTS, ITEMS))
    hidden = np.clip(means + 0.15 * random.normal(size=means.shape), 0.02, 0.98)
    drawn = draw_scores(means, deviations, users=np.arange(LISTS), night=0, seed=seed)
    chosen = np.argsort(-drawn, axis=1)[:, :K]
    propensities = place_probabilities(means, deviations, K)
    rows, best = np.repeat(np.arange(LISTS), K), np.argsort(-means, axis=1)[:, :K]
    reacted = random.random((LISTS, ITEMS)) < hidden
    impressions = pl.DataFrame(
        {
            "list_id": rows,
            "item_id": chosen.ravel(),
            "propensity": propensities[rows, chosen.ravel()],
            "reaction": reacted[rows, chosen.ravel()].astype(float),
            "expected_reaction": means[rows, chosen.ravel()],
        }
    )
    if users:
        impressions = impressions.with_columns(user_id=pl.col("list_id") // 2)
    target = pl.DataFrame({"list_id": rows, "item_id": best.ravel(), "expected_reaction": means[rows, best.ravel()]})
    return impressions, target, hidden[rows, best.ravel()].sum() / LISTS


def test_estimates_are_the_sums_of_their_definitions():
    impressions, target, _ = simulate_lists(0)
    shown = {(one, item) for one, item in target.select("list_id", "item_id").iter_rows()}
    weighted = weights = corrected = 0.0
    for row in impressions.iter_rows(named=True):
        weight = 1 / row["propensity"] if (row["list_id"], row["item_id"]) in shown else 0.0
        weights += weight
        weighted += weight * row["reaction"]
        corrected += weight * (row["reaction"] - row["expected_reaction"])
    found = off_policy(impressions, target)
    values = dict(found.table.select("estimator", "value").iter_rows())
    assert values["ips"] == pytest.approx(weighted / LISTS)
    assert values["snips"] == pytest.approx(weighted / weights * K)
    assert values["doubly_robust"] == pytest.approx((corrected + target["expected_reaction"].sum()) / LISTS)
    assert found.supported_share == pytest.approx(weights / (K * LISTS))
    assert (found.lists, found.units) == (LISTS, LISTS // 2)
    assert found.logged_value == pytest.approx(impressions["reaction"].sum() / LISTS)


@pytest.mark.slow
def test_intervals_cover_the_true_value_in_95_of_100_seeds():
    covered = {"ips": 0, "snips": 0, "doubly_robust": 0}
    errors = {name: [] for name in covered}
    for seed in range(200):
        impressions, target, truth = simulate_lists(seed + 100)
        for name, value, _, low, high in off_policy(impressions, target).table.iter_rows():
            covered[name] += low <= truth <= high
            errors[name].append(value - truth)
    for name, count in covered.items():
        assert 180 <= count <= 199, (name, count)  # binomial of .95, beyond 3 standard deviations
        assert abs(np.mean(errors[name])) < 4 * np.std(errors[name]) / np.sqrt(200)
    assert np.std(errors["doubly_robust"]) < np.std(errors["ips"])


def test_reactions_can_be_a_table_of_their_own():
    impressions, target, _ = simulate_lists(2)
    reactions = impressions.filter(pl.col("reaction") == 1).select("list_id", "item_id")
    apart = off_policy(impressions.drop("reaction"), target, reactions=reactions)
    assert apart.table.equals(off_policy(impressions, target).table)


def test_a_target_that_was_never_shown_is_refused():
    impressions, target, _ = simulate_lists(3)
    elsewhere = target.with_columns(item_id=pl.col("item_id") + ITEMS)
    with pytest.raises(OverlapTooSmallError, match="0% of what the target shows is supported"):
        off_policy(impressions, elsewhere)
    few = impressions.filter(pl.col("list_id") < 10)
    with pytest.raises(OverlapTooSmallError, match="at least 50 are needed"):
        off_policy(few, target.filter(pl.col("list_id") < 10))


ELSEWHERE = pl.DataFrame({"list_id": ["0"], "item_id": ["x"]})
BREACHES = {
    "has no column propensity": lambda i, t, r: (i.drop("propensity"), t, None),
    "come twice: '0', ": lambda i, t, r: (pl.concat([i, i.head(1)]), t, None),
    "propensity = 0": lambda i, t, r: (i.with_columns(propensity=pl.lit(0.0)), t, None),
    "propensity is null or not finite": lambda i, t, r: (i.with_columns(propensity=pl.lit(None)), t, None),
    "reactions: list and item without an impression: '0', 'x'": lambda i, t, r: (i.drop("reaction"), t, ELSEWHERE),
    "give one of the two": lambda i, t, r: (i, t, r),
    "have no column reaction": lambda i, t, r: (i.drop("reaction"), t, None),
    "target: list '0' has no impression": lambda i, t, r: (i.filter(pl.col("list_id") > 0), t, None),
}


@pytest.mark.parametrize("message", BREACHES)
def test_a_breach_of_the_tables_contract_is_named(message):
    impressions, target, _ = simulate_lists(4)
    reactions = impressions.filter(pl.col("reaction") == 1).select("list_id", "item_id")
    logged, wanted, reacted = BREACHES[message](impressions, target, reactions)
    with pytest.raises(ValueError, match=message):
        off_policy(logged, wanted, reactions=reacted)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "spread"), [(1, 0.1), (5, 0.02), (8, 0.3)])
def test_probabilities_are_the_shares_of_a_million_draws(k, spread):
    random = np.random.default_rng(7)
    means = random.beta(2, 5, 60)
    deviations = spread * random.uniform(0.1, 1, 60)
    found = place_probabilities(means[None], deviations[None], k)[0]
    assert found.sum() == pytest.approx(k, abs=1e-6)
    shares = np.zeros(60)
    for part in range(10):
        rows = np.arange(100_000 * part, 100_000 * (part + 1))
        wide = np.broadcast_to(means, (len(rows), 60)), np.broadcast_to(deviations, (len(rows), 60))
        drawn = draw_scores(*wide, users=rows, night=3, seed=1)
        shares += np.bincount(np.argpartition(-drawn, k, axis=1)[:, :k].ravel(), minlength=60)
    assert np.abs(found - shares / 1_000_000).max() < 1e-3


def test_an_item_that_is_nearly_certain_and_places_without_items():
    means = np.array([[0.9, 0.1, np.nan, 0.2], [0.5, np.nan, np.nan, np.nan]])
    deviations = np.array([[1e-7, 0.05, np.nan, 0.05], [0.1, np.nan, np.nan, np.nan]])
    found = place_probabilities(means, deviations, 1)
    assert found[0] == pytest.approx([1, 0, 0, 0], abs=1e-6)
    assert found[1].tolist() == [1, 0, 0, 0]
    assert place_probabilities(means, deviations, 0).tolist() == [[0] * 4] * 2
    assert place_probabilities(means, deviations, 4).tolist() == [[1, 1, 0, 1], [1, 0, 0, 0]]


def test_draws_belong_to_a_user_and_a_night():
    means, deviations = np.full((3, 4), 0.5), np.full((3, 4), 0.1)
    drawn = draw_scores(means, deviations, users=np.array([4, 9, 4]), night=1, seed=0)
    assert (drawn[0] == drawn[2]).all() and (drawn[0] != drawn[1]).all()
    assert (drawn != draw_scores(means, deviations, users=np.array([4, 9, 4]), night=2, seed=0)).all()
    assert (drawn != draw_scores(means, deviations, users=np.array([4, 9, 4]), night=1, seed=1)).all()
