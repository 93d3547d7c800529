"""The settings of the stage `publish`."""

from typing import Literal

from pydantic import BaseModel, Field


class PublishSettings(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Which model makes the published recommendations, how many, and when they take the place of those that stand."""

    margin: float = Field(
        1.0,
        ge=0,
        description="Standard errors of the paired difference by which tonight's choice may be worse on validation.",
    )
    min_size_ratio: float = Field(
        0.8, ge=0, le=1, description="Least share of the standing publication's edges, and of its users."
    )
    model: str | None = Field(
        None, description="The model to publish; by default the run chooses by nDCG@100 on validation."
    )
    protocol: Literal["auto", "next_events", "strong_generalization"] = Field(
        "auto",
        description="The protocol whose validation part chooses settings, the blend's weights and the model. `auto`: "
        "next_events if its validation users are enough, else strong_generalization.",
    )
    companion: str = Field(
        "auto",
        description="The model of the run that says how sure each published like is, and why. `auto`: the published "
        "model, else the best that can; `none`: the published model only.",
    )
    prefer: Literal["best", "simplest"] = Field(
        "best", description="Publish the best list on validation, or the simplest within one standard error of it."
    )
    seen: Literal["auto", "include", "exclude"] = Field(
        "auto",
        description="Whether lists, and the rankings of next_events, include the items that a user has already. "
        "`auto`: if the log shows that users come back to such items.",
    )
    top_n: int = Field(20, ge=1, le=1000, description="Recommendations for each user.")
    cold_share: float = Field(
        0.1, ge=0, le=1, description="Share of a list that items which nobody likes may take, placed by attributes."
    )
    explore: Literal["off", "thompson"] = Field(
        "off", description="Publish lists, too, of which some places go to items by draws from the posterior of `like`."
    )
    titles: str | None = Field(
        None, description="The table of item ids and titles that is kept with what is published."
    )
    max_age: float | None = Field(
        None, gt=0, description="Days after which runs and /health call what is published stale; by default never."
    )
    after: list[str] = Field(
        [], description="A program and its arguments, run once a publication stands; if it fails, that is an alarm."
    )
