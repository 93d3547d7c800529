"""The settings of the binary-matrix model."""

from typing import ClassVar

from pydantic import Field

from oneclass.models.binary_matrix.sampling import Strategy
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace


class BinaryMatrixSettings(ModelSettings):
    """Priors and sampling."""

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
    passes: int = Field(80, ge=1, description="Number of passes; a pass draws two entries for every one in the matrix.")
