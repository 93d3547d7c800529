"""Weighted sums of the scores of other models, normalised to one scale for each user."""

from oneclass.models.blend.model import Blend, BlendSettings, Component
from oneclass.models.blend.weight_search import Candidates, Weights, search_weights

__all__ = ["Blend", "BlendSettings", "Candidates", "Component", "Weights", "search_weights"]
