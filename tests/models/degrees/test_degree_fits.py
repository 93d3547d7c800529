"""Fits of degree laws: planted parameters, a peer library, brute force, and the bootstrap's own truth."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import chisquare

from oneclass.models.degrees.distributions import FAMILIES, Distribution, power_law, power_law_with_mean, support
from oneclass.models.degrees.fits import SINGLE_CELLS, Cells, Likelihood, fit_family, ks_distance

LONG = 100_000  # so long a support that its end does not show


def sample_degrees(law, vertices, seed=0):
    """Ascending degrees that came up, their counts, and the whole histogram."""
    histogram = law.sample(vertices, np.random.default_rng(seed))
    at = np.flatnonzero(histogram)
    return at + law.d_min, histogram[at], histogram


@pytest.mark.filterwarnings("ignore")  # powerlaw's own, on its starting values
@pytest.mark.parametrize(("family", "planted"), [
    ("power_law", power_law(2.5, 1, LONG)),
    ("power_law_cutoff", power_law(1.8, 1, LONG, 50)),
    ("exponential", Distribution("exponential", (-0.1,), 1, LONG)),
], ids=["power law", "with cut-off", "exponential"])  # fmt: skip
def test_agrees_with_powerlaw_on_a_long_support(family, planted):
    degrees, counts, _ = sample_degrees(planted, 2_000)
    ours = fit_family(family, degrees, counts, LONG)
    import powerlaw  # here, since it loads Matplotlib

    peer = powerlaw.Fit(np.repeat(degrees, counts), discrete=True, xmin=1, estimate_discrete=False, verbose=0)
    theirs = {"power_law": peer.power_law, "power_law_cutoff": peer.truncated_power_law,
              "exponential": peer.exponential}[family]  # fmt: skip
    assert ours.log_likelihood == pytest.approx(theirs.loglikelihood, abs=0.02)
    assert ours.log_likelihood > theirs.loglikelihood - 1e-4
    if family != "exponential":
        assert ours.exponent == pytest.approx(theirs.alpha, abs=0.01)
    if family == "power_law":
        assert ours.ks == pytest.approx(theirs.D, abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_likelihood_is_flat_at_the_fit(family):
    *sample, histogram = sample_degrees(power_law(1.2, 2, 400, 60), 3_000)
    law = Likelihood(family, 2, 400).maximise(*sample)
    degrees = np.arange(2.0, 401.0)
    rows, base = FAMILIES[family].statistics(degrees), FAMILIES[family].base(degrees)

    def naive(eta):
        weights = [sum(e * row[k] for e, row in zip(eta, rows, strict=True)) + base[k] for k in range(len(degrees))]
        return (histogram * weights).sum() - histogram.sum() * np.log(np.exp(weights).sum())

    eta, errors = np.array(law.eta), 1 / np.sqrt(3_000 * rows.var(axis=1))
    slopes = approx_fprime(eta, naive, 1e-3 * errors) * errors  # log-likelihood a standard error
    assert np.abs(slopes).max() < 0.01
    for move in np.vstack([np.diag(errors), -np.diag(errors)]):
        assert naive(eta + move) < naive(eta)


@pytest.mark.parametrize("family", ["power_law_cutoff", "log_normal"])
def test_a_tail_heavier_than_any_has_no_cutoff(family):
    degrees, counts = np.array([1, 2, 3, 400]), np.array([5, 2, 1, 8])
    fitted, pure = fit_family(family, degrees, counts, 400), fit_family("power_law", degrees, counts, 400)
    assert fitted.cutoff is None
    assert fitted.log_likelihood == pytest.approx(pure.log_likelihood)
    assert fitted.ks == pytest.approx(pure.ks)


def test_ks_distance_against_brute_force():
    law = power_law(0.8, 3, 60, 25)
    *sample, histogram = sample_degrees(law, 40)
    degrees = np.repeat(np.arange(3, 61), histogram)
    gaps = [abs((degrees <= d).mean() - law.mass[: d - 2].sum()) for d in range(3, 61)]
    assert ks_distance(law, *sample) == pytest.approx(max(gaps))


# The support of the second is in cells.
@pytest.mark.parametrize(
    "law", [power_law(1.2, 1, 80, 30), pytest.param(power_law(1.1, 1, 60_000, 9_000), marks=pytest.mark.slow)], ids=str
)
def test_p_values_are_uniform_under_the_truth(law):
    values = [
        fit_family("power_law_cutoff", *sample_degrees(law, 150, seed)[:2], law.d_max, seed, 19).p_value
        for seed in range(150)
    ]
    shares = [np.mean(np.array(values) <= level) for level in (0.1, 0.25, 0.5, 0.75, 0.9)]
    np.testing.assert_allclose(shares, [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.125)  # three standard errors of a half


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("degrees", "counts", "d_max"), [
    ([1], [1], 1),
    ([3], [1], 900),
    ([1, 2], [1, 1], 2),
    ([4, 5], [30, 1], 6000),
    ([1, 6000], [1, 5000], 6000),
    ([90_000, 90_001, 90_007], [2, 1, 2], 90_010),
])  # fmt: skip
def test_small_and_odd_histograms_give_sound_numbers(family, degrees, counts, d_max):
    fitted = fit_family(family, np.array(degrees), np.array(counts), d_max, 0, 9)
    assert np.isfinite([fitted.log_likelihood, fitted.aic, fitted.ks]).all()
    assert fitted.log_likelihood <= 0
    assert 0 <= fitted.ks <= 1
    for value in (fitted.exponent, fitted.cutoff):
        assert value is None or np.isfinite(value)
    if len(degrees) == 1:
        assert (fitted.exponent, fitted.cutoff, fitted.p_value) == (None, None, None)
    else:
        assert 0 < fitted.p_value <= 1
        shares = np.array(counts) / sum(counts)
        assert fitted.log_likelihood <= (counts * np.log(shares)).sum() + 1e-6


ANY_LAW = [
    Distribution("power_law", (-0.77,), 1, 300),
    Distribution("power_law", (1.5,), 3, 40),
    Distribution("power_law_cutoff", (-1.4, -1 / 70), 1, 300),
    Distribution("log_normal", (2.0, -0.5), 2, 500),
    Distribution("exponential", (-0.05,), 1, 300),
]
DENSITIES = {
    "power_law": lambda d, law: d**-law.exponent,
    "power_law_cutoff": lambda d, law: d**-law.exponent * np.exp(-d / law.cutoff),
    "log_normal": lambda d, law: np.exp(-((np.log(d) - law.exponent) ** 2) / (2 * law.cutoff**2)) / d,
    "exponential": lambda d, law: np.exp(-d / law.cutoff),
}


@pytest.mark.parametrize("law", ANY_LAW, ids=lambda law: law.family)
def test_masses_follow_the_named_parameters(law):
    degrees = np.arange(law.d_min, law.d_max + 1.0)
    weights = np.array([DENSITIES[law.family](d, law) for d in degrees])
    np.testing.assert_allclose(law.mass, weights / weights.sum(), rtol=1e-10)
    np.testing.assert_allclose(law.cdf[-1], 1)
    np.testing.assert_allclose(law.mean, (degrees * weights).sum() / weights.sum())


@pytest.mark.parametrize("mean", [1.001, 2.0, 20.0, 90.0, 200.0, 260.0, 390.0])
def test_a_cutoff_meets_the_mean_and_out_of_its_reach_a_lower_exponent_does(mean):
    law, within_reach = power_law_with_mean(mean, 0.5, 400), mean <= power_law(0.5, 1, 400).mean
    assert within_reach == (mean < 100) and law.mean == pytest.approx(mean, rel=1e-9)
    assert law.exponent == 0.5 and law.cutoff > 0 if within_reach else law.exponent < 0.5 and law.cutoff is None


LONG_SUPPORT = 3_000_000
CELL_LAWS = [
    power_law(1.5, 1, LONG_SUPPORT),
    power_law(0.77, 1, LONG_SUPPORT),
    power_law(-2.0, 40, LONG_SUPPORT),  # the most at the far end
    power_law(1.2, 1, LONG_SUPPORT, 50),
    power_law(1.2, 1, LONG_SUPPORT, 400),
    power_law(0.5, 7, LONG_SUPPORT, 100_000),
    Distribution("log_normal", (12.0, -1.0), 1, LONG_SUPPORT),
    Distribution(
        "log_normal", (2 * np.log(30_000) * 5_000, -5_000.0), 28_500, LONG_SUPPORT
    ),  # a peak, one per cent wide
    Distribution("exponential", (-1 / 3_000,), 1, LONG_SUPPORT),
]


@pytest.mark.parametrize("law", CELL_LAWS, ids=lambda law: f"{law.family}{law.eta}")
def test_shares_and_moments_are_those_of_the_whole_sums(law):
    cells = Cells(law.d_min, LONG_SUPPORT)
    assert len(cells.nodes) < SINGLE_CELLS + 1_000
    np.testing.assert_allclose(cells.cdf(law), law.cdf[cells.starts[1:] - 1 - law.d_min], atol=1e-11)
    mass = cells.weights * np.exp(law.log_weights(cells.nodes))
    for row in (np.log, np.asarray):
        expected = (law.mass * row(support(law.d_min, LONG_SUPPORT))).sum()
        assert (mass * row(cells.nodes)).sum() / mass.sum() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("draws", [5_000, 60_000])  # one by one, and by the numbers in each cell
def test_draws_have_the_laws_shares(draws):
    law, generator = power_law(0.9, 3, 200_000, 30_000), np.random.default_rng(1)
    cells, cuts = Cells(3, 200_000), np.geomspace(3, 200_001, 12).astype(int)
    seen = np.zeros(len(cuts) - 1)
    for _ in range(20):
        degrees, counts = cells.sample(law, draws, generator)
        assert counts.sum() == draws and (np.diff(degrees) > 0).all() and (counts > 0).all()
        seen += np.histogram(degrees, cuts, weights=counts)[0]
    expected = np.diff(np.concatenate([[0.0], law.cdf])[cuts - 3]) * 20 * draws
    assert chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3


def test_a_fit_on_cells_is_flat_for_the_whole_likelihood():
    law = power_law(0.9, 3, 200_000, 30_000)
    degrees, counts = Cells(3, 200_000).sample(law, 20_000, np.random.default_rng(2))
    found = fit_family("power_law_cutoff", degrees, counts, 200_000)
    at = Distribution("power_law_cutoff", (-found.exponent, -1 / found.cutoff), int(degrees[0]), 200_000)
    for row in (np.log, np.asarray):  # at the maximum the law's means are those of the degrees
        whole = row(support(at.d_min, 200_000))
        assert (at.mass * whole).sum() == pytest.approx((counts * row(degrees.astype(float))).sum() / 20_000, rel=1e-6)
