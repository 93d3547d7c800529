"""The settings of `graph_filter`, and those of them that follow from the log where no number is given."""

from typing import ClassVar, Self

from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.numerics.validation import mean_degree
from oneclass.models.settings import NumericRange, RecencySettings, RelativeRange, SearchSpace, interpolate_by_items

VECTORS = 2.0  # times the square root of the number of items, where a mean user has ENOUGH likes
ENOUGH = 25.0  # the vectors of shorter histories are mostly noise: a share (likes / ENOUGH)^1.5 of them is taken
SHORT, LONG = 5.0, 12.0  # likes of a mean user, between which the settings below go from the first to the second
FROM_HISTORIES = {"low_pass_exponent": (0.4, 0.1), "sharpening": (0.0, 0.4)}
LONG_LOW_PASS = 1.0  # that of short histories is by the items
# Of short histories over few and over many items; the vectors are so many times those of the rule.
FROM_ITEMS = {"low_pass": (1.0, 3.0), "vectors": (2.0, 1.0)}


def default_vectors(items: int, likes: float) -> int:
    """The vectors of the low-pass for a number of items and the likes of a mean user."""
    share = min(1.0, (likes / ENOUGH) ** 1.5)
    return max(1, round(VECTORS * share * items**0.5))


class GraphFilterSettings(RecencySettings):
    """The defaults are chosen on validation users of seven logs."""

    search_space: ClassVar[SearchSpace] = {
        "user_exponent": NumericRange(0.5, 1.0),
        "in_exponent": NumericRange(0.3, 0.9),
        "out_exponent": NumericRange(0.0, 0.4),
        "low_pass": NumericRange(0.2, 3.0, log=True),
        "vectors": RelativeRange(4, largest=2.0),
        "low_pass_exponent": NumericRange(0.0, 0.4),
        "sharpening": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = (
        {
            "in_exponent": 0.3, "out_exponent": 0.15,
            "low_pass": 0.85, "low_pass_exponent": 0.1, "sharpening": 0.05,
        },
        {
            "in_exponent": 0.3, "out_exponent": 0.15,
            "low_pass": 1.0, "vectors": 0.3, "low_pass_exponent": 0.1, "sharpening": 0.05,
        },
        {
            "user_exponent": 0.65, "out_exponent": 0.15,
            "low_pass": 0.2, "low_pass_exponent": 0.2, "sharpening": 0.8,
        },
    )  # fmt: skip

    user_exponent: float = Field(0.7, ge=-1, le=3, description="du: a path through a user weighs degree^-du.")
    in_exponent: float = Field(0.6, ge=-1, le=3, description="An item of the history weighs degree^-in.")
    out_exponent: float = Field(0.1, ge=-1, le=3, description="An item's score weighs degree^-out.")
    low_pass: float | None = Field(
        None,
        ge=0,
        description="alpha, the weight of the ideal low-pass; 0 to leave it out. By default 1 where a mean user has 12 "
        "likes or more, or where there are 300 items or fewer; 3 where 5 likes or fewer and 3,000 items or more; and "
        "between these between.",
    )
    vectors: int | None = Field(
        None,
        ge=1,
        description="Singular vectors of the low-pass. By default 2 sqrt(items), rounded; where a mean user has fewer "
        "than 25 likes, (likes / 25)^1.5 of that, and up to twice as many where there are few items.",
    )
    low_pass_exponent: float | None = Field(
        None,
        ge=-1,
        le=3,
        description="gamma: the low-pass divides the items of a history by degree^gamma, and multiplies scores by it. "
        "By default 0.1, or 0.4 where a mean user has 5 likes or fewer, as for `low_pass`.",
    )
    sharpening: float | None = Field(
        None,
        ge=0,
        description="h, the strength of the sharpening; 0 to leave it out. By default 0.4, or 0 where a mean user has "
        "5 likes or fewer, as for `low_pass`.",
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """The settings with the low-pass and the sharpening for a (users, items) log, by the likes of a mean user."""
        likes, items = mean_degree(interactions), interactions.shape[1]
        long = min(max((likes - SHORT) / (LONG - SHORT), 0.0), 1.0)
        of_items = {name: interpolate_by_items(items, few, many) for name, (few, many) in FROM_ITEMS.items()}
        ends = FROM_HISTORIES | {"low_pass": (of_items["low_pass"], LONG_LOW_PASS)}
        by_rule: dict[str, float] = {name: (1 - long) * a + long * b for name, (a, b) in ends.items()}
        by_rule["vectors"] = round(default_vectors(items, likes) * of_items["vectors"] ** (1 - long))
        return self.model_copy(update={name: value for name, value in by_rule.items() if getattr(self, name) is None})
