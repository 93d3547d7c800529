"""Sums over a long support in cells against the whole sums, and draws against the law that they are of."""

import numpy as np
import pytest
from scipy.stats import chisquare

from oneclass.models.degrees.cells import NODES_PER_CELL, SINGLE_CELLS, Cells, summation_nodes
from oneclass.models.degrees.distributions import Distribution, power_law, support
from oneclass.models.degrees.fits import fit_family

LONG = 3_000_000
LAWS = [
    power_law(1.5, 1, LONG),
    power_law(0.77, 1, LONG),
    power_law(-2.0, 40, LONG),  # the most at the far end
    power_law(1.2, 1, LONG, 50),
    power_law(1.2, 1, LONG, 400),
    power_law(0.5, 7, LONG, 100_000),
    Distribution("log_normal", (12.0, -1.0), 1, LONG),
    Distribution("log_normal", (2 * np.log(30_000) * 5_000, -5_000.0), 28_500, LONG),  # a peak, one per cent wide
    Distribution("exponential", (-1 / 3_000,), 1, LONG),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.family}{law.eta}")
def test_shares_and_moments_are_those_of_the_whole_sums(law):
    cells = Cells(law.d_min, LONG)
    assert len(cells.nodes) < SINGLE_CELLS + 1_000
    np.testing.assert_allclose(cells.cdf(law), law.cdf[cells.starts[1:] - 1 - law.d_min], atol=1e-11)
    mass = cells.weights * np.exp(law.log_weights(cells.nodes))
    for row in (np.log, np.asarray):
        expected = (law.mass * row(support(law.d_min, LONG))).sum()
        assert (mass * row(cells.nodes)).sum() / mass.sum() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("points", [1, NODES_PER_CELL, NODES_PER_CELL + 1, 40, 100_000])
def test_sums_of_polynomials_are_exact(points):
    nodes, weights = summation_nodes(-(points // 2), points)
    whole = np.arange(points) - points // 2
    for degree in range(2 * NODES_PER_CELL):
        expected = (whole / points) ** degree
        assert (weights * (nodes / points) ** degree).sum() == pytest.approx(
            expected.sum(), rel=1e-11, abs=1e-11 * points
        )


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
