"""Recommended items of one user, as an explanation shows them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RecommendedItem:
    """One recommended item.

    Attributes:
        users: how many users like it.
        like: mean and standard deviation of the like probability, where the model has one.
        held_out: the user likes it, but that like was not among the training edges.
        because: (item id, what it added to the score) of the items in the history that added most.
    """

    item_id: str
    score: float
    users: int
    like: tuple[float, float] | None
    held_out: bool
    because: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ModelRecommendations:
    """What one model recommends.

    Attributes:
        score: the model's score that ordered the items.
        protocol: the one on whose training edges the model was fitted.
        known: the user is a training user of the fit; otherwise their history was folded in.
        told: how many items of the history the model knew of.
    """

    model: str
    score: str
    protocol: str
    known: bool
    told: int
    items: list[RecommendedItem]
