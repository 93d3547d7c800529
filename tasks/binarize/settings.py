"""The settings of the stage `binarize`."""

from typing import ClassVar

from pydantic import Field

from oneclass.models.settings import Settings


class BinarizeSettings(Settings):
    """Which events count as likes, and which users and items are active enough to keep."""

    deprecated: ClassVar = {"observed_negatives": "explicit_negatives"}

    threshold: float = Field(
        1.0, allow_inf_nan=False, description="An event is a like when its value is at least this."
    )
    min_user_edges: int = Field(0, ge=0, description="Drop users with fewer edges, in one pass, after the items.")
    min_item_edges: int = Field(0, ge=0, description="Drop items with fewer edges, in one pass.")
    k_core: int = Field(
        0, ge=0, description="Drop users and items until every user and item that is left has this many edges."
    )
    explicit_negatives: bool = Field(
        False,
        description="Keep what users considered and did not like, pairs with events and no like among them, to judge "
        "`like` "
        "by, and for models whose settings take them (`random_graph.explicit_negatives`, "
        "`wmf.explicit_negative_weight`), which "
        "turn it on.",
    )
