"""The settings of the binary-matrix model."""

from typing import ClassVar

from pydantic import Field

from oneclass.models.binary_matrix.sampling import Strategy
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace


class BinaryMatrixSettings(ModelSettings):
    """Priors, sampling, step sizes and minibatches."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "user_variance": NumericRange(0.05, 1.0, log=True),
        "item_variance": NumericRange(0.05, 1.0, log=True),
        "passes": NumericRange(20, 160, log=True, manual_only=True),
    }

    factors: int = Field(20, ge=1, description="K, the poster's D.")
    sampling: Strategy = Field("balanced", description="How entries are drawn: uniform, balanced or biased.")
    user_variance: float = Field(0.2, gt=0, description="Prior variance of u_id.")
    item_variance: float = Field(0.2, gt=0, description="Prior variance of v_jd.")
    z_variance: float = Field(100.0, gt=0, description="Prior variance of the global bias.")
    passes: int = Field(80, ge=1, description="Number of passes; a pass draws two entries for every one in the matrix.")
    t0: float = Field(
        30.0,
        ge=1,
        description="t0 of the step size (t0 + t)^-power; if it is small, the first steps, which are taken in "
        "all K directions at once, may diverge.",
    )
    power: float = Field(0.7, gt=0.5, le=1, description="Power of the step size.")
    theta_delta: float = Field(1.0, gt=0, description="Theta delta of box 8: how much noise a minibatch may have.")
    least_batch: int = Field(1000, ge=1, description="Least number of entries in a minibatch.")
    most_batch: int = Field(
        10_000_000, ge=1, description="Largest number of entries in a minibatch; each takes 40 bytes."
    )
    initial_scale: float = Field(0.1, gt=0, description="Standard deviation of the means before the first pass.")
    fold_in_iterations: int = Field(
        30, ge=1, description="Largest number of steps of Newton's method for an unseen user."
    )
    fold_in_tolerance: float = Field(
        1e-3, ge=0, description="Stop when no mean of an unseen user changes by more than this share of the largest."
    )
