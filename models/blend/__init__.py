"""The room of `blend`: a weighted sum of the scores of other models, each brought to one scale a user."""

from models.blend.model import Blend, BlendSettings, Member
from models.blend.weights import Candidates, Weighed, weigh

__all__ = ["Blend", "BlendSettings", "Candidates", "Member", "Weighed", "weigh"]
