"""Laws of vertex degrees on a bounded support: masses, means, samples.

In a bipartite graph a degree cannot exceed the size of the other side, so that every law here is one of the integers
d_min .. d_max. On these the exponent of a power law may also be below one, such as the 0.77 of the items in Paquet and
Koenigstein (2014, section 2), or negative. All four families are exponential families,

    log p(d) = base(d) + eta . T(d) - log Z(eta),

so that one Newton method fits them all (`models.degrees.fits`):

    power_law         T = log d               eta = -exponent
    power_law_cutoff  T = (log d, d)          eta = (-exponent, -1 / cutoff)
    log_normal        T = (log d, log^2 d)    eta = (mu / sigma^2, -1 / (2 sigma^2)), base = -log d
    exponential       T = d                   eta = -1 / cutoff
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Family:
    """A family of laws.

    Attributes:
        name: the name in the table `diagnostics.power_law_fits`.
        parameters: the number of free parameters.
        curbed: whether the last natural parameter must be at most zero; at zero the cut-off is infinite.
        statistics: function from degrees, float64 (S,), to the rows of T, (parameters, S).
        base: function from degrees, float64 (S,), to the log of the base measure, (S,).
    """

    name: str
    parameters: int
    last_parameter_nonpositive: bool
    statistics: Callable[[np.ndarray], np.ndarray]
    base: Callable[[np.ndarray], np.ndarray] = np.zeros_like


FAMILIES = {
    family.name: family
    for family in (
        Family("power_law", 1, False, lambda d: np.log(d)[None]),
        Family("power_law_cutoff", 2, True, lambda d: np.stack([np.log(d), d])),
        Family("log_normal", 2, True, lambda d: np.stack([np.log(d), np.log(d) ** 2]), lambda d: -np.log(d)),
        Family("exponential", 1, True, lambda d: d[None]),
    )
}


@dataclass(frozen=True)
class Distribution:
    """A law of degrees: a family, its natural parameters, and its support d_min .. d_max, both included."""

    family: str
    eta: tuple[float, ...]
    d_min: int
    d_max: int

    @cached_property
    def log_mass(self) -> np.ndarray:
        """Log probabilities of d_min, d_min + 1, ..., d_max, float64 (S,), finite."""
        value = self.log_weights(support(self.d_min, self.d_max))
        return value - np.log(np.exp(value).sum())

    def log_weights(self, degrees: np.ndarray) -> np.ndarray:
        """Log probabilities of degrees, float64 (D,), but for a constant: the largest of them is 0."""
        family = FAMILIES[self.family]
        value = family.base(degrees)
        # A sum, not a BLAS product, whose last bits could depend on the number of threads.
        for eta, row in zip(self.eta, family.statistics(degrees), strict=True):
            value = value + eta * row
        return value - value.max()

    @cached_property
    def mass(self) -> np.ndarray:
        """Probabilities of the degrees of the support, float64 (S,); they sum to one."""
        return np.exp(self.log_mass)

    @cached_property
    def cdf(self) -> np.ndarray:
        """P(degree <= d) for d = d_min, ..., d_max, float64; the last is exactly one."""
        total = np.cumsum(self.mass)
        return np.minimum(total / total[-1], 1.0)

    @property
    def mean(self) -> float:
        return float((self.mass * support(self.d_min, self.d_max)).sum())

    @property
    def exponent(self) -> float | None:
        """The power of 1/d; mu for the log-normal; None for the exponential, and if mu is not finite."""
        if self.family == "exponential":
            return None
        if self.family != "log_normal":
            return -self.eta[0]
        return None if self.eta[1] == 0 else -self.eta[0] / (2 * self.eta[1])

    @property
    def cutoff(self) -> float | None:
        """The degree scale of the exponential decay; sigma for the log-normal; None if infinite."""
        if self.family == "power_law" or self.eta[-1] == 0:
            return None
        return (-0.5 / self.eta[1]) ** 0.5 if self.family == "log_normal" else -1 / self.eta[-1]

    def sample(self, draws: int, generator: np.random.Generator) -> np.ndarray:
        """How often each degree of the support occurs in `draws` independent draws, int64 (S,)."""
        if draws > len(self.mass):
            return generator.multinomial(draws, self.mass)
        at = np.searchsorted(self.cdf, generator.random(draws), side="right")
        return np.bincount(at, minlength=len(self.mass))


def support(d_min: int, d_max: int) -> np.ndarray:
    """The degrees d_min .. d_max as float64."""
    return np.arange(d_min, d_max + 1, dtype=np.float64)


def power_law(exponent: float, d_min: int, d_max: int, cutoff: float | None = None) -> Distribution:
    """p(d) proportional to d^-exponent exp(-d / cutoff); None for no cut-off."""
    if cutoff is None:
        return Distribution("power_law", (-exponent,), d_min, d_max)
    return Distribution("power_law_cutoff", (-exponent, -1 / cutoff), d_min, d_max)


def power_law_with_mean(mean: float, exponent: float, d_max: int) -> Distribution:
    """The power law with exponential cut-off on 1 .. d_max whose mean is `mean`; the cut-off is chosen.

    A cut-off can only lower the mean. If even the pure power law has too small a mean, the result has no cut-off, and a
    lower exponent that gives the mean.

    Args:
        mean: strictly between 1 and d_max.
        exponent: the wanted power; kept if a cut-off can give the mean.
    """
    from scipy.optimize import brentq  # takes a third of a second, and the demo's log alone needs it

    def cut_off(rate: float) -> Distribution:
        return Distribution("power_law_cutoff", (-exponent, -rate), 1, d_max)

    if power_law(exponent, 1, d_max).mean >= mean:
        return cut_off(brentq(lambda rate: cut_off(rate).mean - mean, 0.0, 800.0, xtol=1e-15, rtol=1e-12))
    lowest = exponent - 1.0
    while power_law(lowest, 1, d_max).mean < mean:
        lowest = 2 * lowest - 1.0
    power = brentq(lambda power: power_law(power, 1, d_max).mean - mean, lowest, exponent, xtol=1e-12)
    return power_law(power, 1, d_max)
