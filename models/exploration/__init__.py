"""Lists that explore: some places go to items by draws from the posterior, with the probability of each item."""

from oneclass.models.exploration.propensities import place_probabilities
from oneclass.models.exploration.thompson import draw_scores

__all__ = ["draw_scores", "place_probabilities"]
