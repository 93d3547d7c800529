"""Settings of the random-graph model."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace

T_TAU = 10  # iterations before the precisions are learned
BOUND_EVERY = 5  # iterations between evaluations of the bound


class RandomGraphSettings(ModelSettings):
    """Settings of the random-graph model; the paper's values where it states them."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "iterations": NumericRange(30, 80, manual_only=True),
        "gamma": NumericRange(0.2, 1.0, manual_only=True),
        "learn_tau": Choice((False, True)),
        "tau": NumericRange(0.3, 10.0, log=True),
        "popularity_weight": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = ({"factors": 64, "learn_tau": False, "tau": 0.6},)

    factors: int = Field(20, ge=1, le=512, description="K, the number of latent features.")
    iterations: int = Field(40, ge=1, description="t_max, the largest number of hidden graphs, and of passes.")
    r: float = Field(
        1.0,
        gt=0,
        description="Weight of the most popular item among the negatives, as a multiple "
        "of its degree (eq. 8); sets gamma by eq. 9.",
    )
    gamma: float | None = Field(
        None, ge=-2, le=2, description="Power of the histogram pi_n = d_n^gamma (eq. 7); overrides r."
    )
    explicit_negatives: bool = Field(
        False,
        description="Take the items that a user considered and did not like, where a log has such, for edges of the "
        "hidden graph, and draw only what they leave of d_m negatives (section 7).",
    )
    learn_tau: bool = Field(True, description="Learn the precisions tau (eq. 20); otherwise they stay at `tau`.")
    tau: float = Field(1.0, gt=0, description="Precisions of the priors, until they are learned.")
    popularity_weight: float = Field(0.5, ge=0, description="a in `popularity_x_odds`, logit(like) + a log pi.")
    blocks: int = Field(
        1,
        ge=1,
        description="Blocks of users that are fitted apart and whose messages to the items are added (section 5.2); 1 "
        "fits all users as one.",
    )
    refreshed: int = Field(
        0,
        ge=0,
        description="Blocks that send a new message before each update of the items, taken in turn, while the others' "
        "messages stay as they are (eq. 21); 0 for all, which is what one block computes.",
    )

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether a fit uses explicit negatives (`FitOptions.explicit_negatives`)."""
        return self.explicit_negatives

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.explicit_negatives and self.blocks > 1:
            raise ValueError("explicit_negatives: a fit by blocks does not take them; set blocks = 1")
        return self

    def evaluates_bound(self, t: int) -> bool:
        """Whether the bound is evaluated at iteration t."""
        return t % BOUND_EVERY == 0 or t == self.iterations

    def learns_tau(self, t: int) -> bool:
        """Whether the precisions are updated in iteration t."""
        return self.learn_tau and t > T_TAU
