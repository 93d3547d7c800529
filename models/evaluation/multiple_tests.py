"""Corrections of p-values for the number of comparisons in a table of ranked lists.

Holm, S. (1979): A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6, 65-70.
Hsu, J. C. (1984): Constrained simultaneous confidence intervals for multiple comparisons with the best. Annals of
Statistics 12, 1136-1144.
Benjamini, Y. and Hochberg, Y. (1995): Controlling the false discovery rate. Journal of the Royal Statistical Society B
57, 289-300.
"""

import numpy as np

ALPHA = 0.05  # a corrected p-value below it marks a difference


def adjust_against_best(p_values: np.ndarray) -> np.ndarray:
    """Correct the p-values of all lists against the best one, which the same users picked.

    With m lists, hypothesis i is "list i is one of the best": no list is truly better (Hsu 1984). If it holds, each of
    the m - 1 one-sided tests "list j is better than list i" is a valid test. So m - 1 times the one-sided p-value
    against the observed best, whichever that is, is a valid p-value of hypothesis i (Bonferroni). Holm's procedure over
    the m hypotheses then bounds the chance that a table calls any of its truly best lists worse, for any number of
    equal lists and any correlation between them.

    Hsu's own intervals do not: they allow for ties, so that of several lists which are all the best they may call all
    but one no better. Nor does Holm's procedure over the m - 1 comparisons alone, as if the best had been named
    beforehand.

    Args:
        p_values: float64 (lists - 1,), two-sided, of each other list against the best.
    """
    others = len(p_values)
    return adjust_holm(np.asarray(p_values) * others / 2, others + 1)


def adjust_holm(p_values: np.ndarray, hypotheses: int | None = None) -> np.ndarray:
    """Correct p-values so that at most a share ALPHA of families has a wrong rejection (Holm 1979).

    Args:
        p_values: float64 (tests,).
        hypotheses: size of the family, at least the number of tests, which it is by default; the rest counts as true.
    """
    p_values = np.asarray(p_values)
    order, adjusted = np.argsort(p_values), np.empty(len(p_values))
    factors = (hypotheses or len(p_values)) - np.arange(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1)
    return adjusted


def adjust_benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """Correct p-values so that, of the rejections, a share ALPHA at most is wrong on average (Benjamini 1995).

    Args:
        p_values: float64 (tests,).
    """
    p_values = np.asarray(p_values)
    order, adjusted = np.argsort(p_values)[::-1], np.empty(len(p_values))
    factors = len(p_values) / np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.minimum.accumulate(factors * p_values[order]), 1)
    return adjusted
