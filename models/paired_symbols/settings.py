"""The settings of paired symbols."""

from typing import ClassVar

from pydantic import Field

from oneclass.models.paired_symbols.kernels import MAX_FACTORS
from oneclass.models.settings import ModelSettings, NumericRange, SearchSpace


class PairedSymbolsSettings(ModelSettings):
    """Settings of `PairedSymbols`; the paper's where it states one."""

    search_space: ClassVar[SearchSpace] = {
        "factors": NumericRange(10, 100, log=True, manual_only=True),
        "r": NumericRange(0.5, 16.0, log=True, manual_only=True),
        "iterations": NumericRange(10, 40, manual_only=True),
        "tau_u": NumericRange(0.3, 10.0, log=True),
        "tau_v": NumericRange(0.3, 10.0, log=True),
        "popularity_weight": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = ({"factors": 64, "r": 4.0, "like_r": 1.0, "tau_u": 0.6, "tau_v": 0.8},)

    factors: int = Field(20, ge=1, le=MAX_FACTORS, description="K, the length of u_i and v_j.")
    r: float = Field(1.0, gt=0, allow_inf_nan=False, description="Censored pairs for each pair seen, D' = r D.")
    like_r: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Censored pairs for each pair seen that `like` is stated against, whatever number the fit has: by "
        "Bayes' rule log(r / like_r) is added to a_ij. By default r, as in the paper.",
    )
    iterations: int = Field(20, ge=1, description="Largest number of passes over all block updates.")
    learn_selection: bool = Field(
        False,
        description="Update s and t too; otherwise they stay at the shares of events, c_i/D and c_j/D. Learning "
        "them raises the bound, but `like` ranks worse with every pass.",
    )
    tau_u: float = Field(1.0, gt=0, allow_inf_nan=False, description="Prior precision of the users' factors.")
    tau_v: float = Field(1.0, gt=0, allow_inf_nan=False, description="Prior precision of the items' factors.")
    popularity_weight: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="a in `popularity_x_odds`, x + a log E[psi]."
    )
