"""The settings of the random-graph model."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace


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
    balance_popular: bool = Field(
        False,
        description="Adjust pi so that popular items get their full share of negatives (caption of Figure 3).",
    )
    explicit_negatives: bool = Field(
        False,
        description="Take the items that a user considered and did not like, where a log has such, for edges of the "
        "hidden graph, and draw only what they leave of d_m negatives (section 7).",
    )
    fill_negatives: bool = Field(
        True,
        description="With explicit_negatives: draw random ones up to d_m beside them; otherwise the explicit ones are "
        "all, so that `like` is of items that the log says were considered.",
    )
    user_biases: bool = Field(False, description="Learn user biases; the paper clamps them at zero (section 6).")
    joint_bias: bool = Field(
        False,
        description="Update a vertex's bias and factors as one block, which is exact and saves a pass over the "
        "edges; otherwise the bias comes first (Algorithm 1).",
    )
    learn_tau: bool = Field(True, description="Learn the precisions tau (eq. 20); otherwise they stay at `tau`.")
    tau: float = Field(1.0, gt=0, description="Precisions of the priors, until they are learned.")
    alpha: float = Field(0.01, gt=0, description="Shape of the Gamma prior of the precisions.")
    beta: float = Field(0.01, gt=0, description="Rate of the Gamma prior of the precisions.")
    attribute_regularization: float = Field(
        10.0,
        gt=0,
        description="With attributes: penalty on the squares of the maps from features to prior means, in users or "
        "items; the larger it is, the less attributes move known users and items.",
    )
    t_tau: int = Field(10, ge=0, description="Iterations before the precisions are learned.")
    t_epsilon: int = Field(10, ge=0, description="Iterations with a step size of one.")
    initial_scale: float = Field(0.1, gt=0, description="Standard deviation of the first means of the factors.")
    popularity_weight: float = Field(0.5, ge=0, description="a in `popularity_x_odds`, logit(like) + a log pi.")
    fold_in_iterations: int = Field(12, ge=1, description="Updates of an unseen user, each with new negatives.")
    bound_every: int = Field(5, ge=0, description="Iterations between evaluations of the bound; 0 for never.")
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
    tolerance: float = Field(
        0.003,
        ge=0,
        lt=1,
        description="Stop when the bound has moved by less than this share between two evaluations, the first of them "
        "ten iterations after t_tau and t_epsilon at the earliest; 0 makes all iterations.",
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
        return bool(self.bound_every) and (t % self.bound_every == 0 or t == self.iterations)
