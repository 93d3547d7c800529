"""The settings of the stage `binarize`."""

from typing import Self

from pydantic import Field, model_validator

from oneclass.models.settings import Settings

MIN_SUM = 1e-9  # weights are added up in steps of this


class BinarizeSettings(Settings):
    """Which events count as likes, and whether what is none is kept."""

    threshold: float = Field(
        1.0,
        description="An event is a like when its value is at least this; where values add up, a pair whose sum is.",
    )
    sum_values: bool = Field(
        False,
        description="Add up the values of a pair's events, so that a negative one takes back what came before. The sum "
        "is the pair's `weight`.",
    )
    event_weights: dict[str, float] = Field(
        {},
        description="What an event of each kind adds, times its value; 0 leaves the kind out. From `[events]` of the "
        "data set's file; values then add up.",
    )
    half_life_days: float | None = Field(
        None,
        gt=0,
        description="Days after which an event adds half as much, counted back from the last event of the period; "
        "values then add up.",
    )
    explicit_negatives: bool = Field(
        False,
        description="Keep what users considered and did not like, pairs with events and no like among them, to judge "
        "`like` by, and for models whose settings take them (`random_graph.explicit_negatives`, "
        "`wmf.explicit_negative_weight`), which turn it on.",
    )

    @property
    def adds_values(self) -> bool:
        """Whether a pair is judged by the sum of its events, not by each of them."""
        return self.sum_values or bool(self.event_weights) or self.half_life_days is not None

    @model_validator(mode="after")
    def _sums_need_a_positive_threshold(self) -> Self:
        if self.adds_values and self.threshold < MIN_SUM:
            raise ValueError(
                f"threshold = {self.threshold:g}: must be above 0 where values add up, since pairs whose events take "
                "each other back have the sum 0"
            )
        return self
