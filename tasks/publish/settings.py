"""The settings of the stage `publish`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class PublishSettings(BaseModel):
    """Which model makes the published recommendations, how many, and when they take the place of those that stand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    margin: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="The standing configuration stays if tonight's is worse on validation by more than so many "
        "standard errors of their difference, paired over users. An equal configuration is never worse.",
    )
    min_size_ratio: float = Field(
        0.8, ge=0, le=1, description="Least share of the standing publication's edges, and of its users."
    )
    min_coverage_ratio: float = Field(
        0.5, ge=0, le=1, description="Least share of the number of items that the standing lists recommend."
    )
    max_drop: float = Field(
        0.1,
        ge=0,
        le=1,
        description="The standing configuration's validation metric may fall by this share between two nights; more is "
        "refused, where it is also more than five standard errors.",
    )
    model: str | None = Field(
        None, description="The model to publish; by default the run chooses by nDCG@100 on validation."
    )
    protocol: Literal["auto", "next_events", "strong_generalization"] = Field(
        "auto",
        description="The protocol by whose validation part settings, weights of the blend and the model to publish are "
        "chosen. `auto`: next_events where its validation edges have users enough, since published lists go to known "
        "users tomorrow; else strong_generalization.",
    )
    companion: str = Field(
        "auto",
        description="The model that says, of each published row, how sure a like is and why: a model of the run with a "
        "like probability. `auto`: the published model if it has one, else the best of these on validation; `none`: "
        "only what the published model says itself.",
    )
    prefer: Literal["best", "simplest"] = Field(
        "best",
        description="Which list to publish: the one with the best value on validation, or, of those within one "
        "standard error of it, that of the simplest model (it explains itself, else serves fast, else fits fast).",
    )
    seen: Literal["auto", "include", "exclude"] = Field(
        "auto",
        description="Whether published lists, the other ways to recommend by default, and the rankings of next_events "
        "include the items that a user has already. `auto`: include where the log shows that users come back to such "
        "items, which takes times.",
    )
    top_n: int = Field(20, ge=1, le=1000, description="Recommendations for each user.")
    list_windows: list[Annotated[int, Field(ge=1, le=36_500)]] = Field(
        [7, 30],
        min_length=1,
        description="Days before the last like over which the lists for everybody count; readers get those of the "
        "longest unless they ask for another.",
    )
    list_length: int = Field(50, ge=1, le=1000, description="Items in each list for everybody.")
    cold_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Largest share of a list that items which nobody likes may take; their attributes place them. 0 "
        "leaves them out.",
    )
    explore: Literal["off", "thompson"] = Field(
        "off",
        description="Lists that explore, published beside the others with propensities (published.exploration). "
        "thompson: some places go to items by draws from the posterior of `like`.",
    )
    explore_share: float = Field(0.2, gt=0, le=1, description="Share of the places of such a list that explore.")
    titles: str | None = Field(
        None, description="The table of item ids and titles that --titles names; they are kept with what is published."
    )
    max_age: float | None = Field(
        None,
        gt=0,
        description="Days after which published recommendations are stale: a run that leaves older ones ends as "
        "`stale`, and /health says so. By default never.",
    )
    after: list[str] = Field(
        [],
        description="A program and its arguments, run once a publication stands: made by a run, published by hand, "
        "rolled back to, or in place of a damaged one. It has ONECLASS_PUBLICATION (the publication's folder), "
        "ONECLASS_DATASET and ONECLASS_HOME in its environment. If it fails, that is an alarm of the run.",
    )
    keep: int = Field(3, ge=1, description="Publications that are kept whole, to roll back to; always the one before.")
