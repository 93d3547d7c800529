"""The settings of the stage `split`: how users and edges are held out."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from oneclass.models.settings import Settings
from oneclass.tasks.errors import InputError

KeepTimes = bool | Literal["auto"]
SCHEME_BY_SETTING = {"held_out_share": "hashed", "held_out_users": "liang2018"}  # the only scheme that reads a setting


class SplitSettings(Settings):
    """How users and edges are held out. `min_user_edges` and `min_item_edges` are of strong_generalization alone."""

    scheme: Literal["hashed", "liang2018"] = Field(
        "hashed",
        description="`hashed`: a user's part depends on its id and the seed alone. `liang2018`: the published "
        "preprocessing of Liang et al. 2018, draw for draw.",
    )
    held_out_share: float = Field(
        0.1,
        gt=0,
        lt=0.5,
        description="hashed: share of users in each of validation and test; it is halved until these are 50,000 at "
        "most and rank five billion pairs at most.",
    )
    min_validation_users: int = Field(
        100,
        ge=0,
        description="hashed: where fewer validation users than this have a target, all users of strong_generalization "
        "are divided into five folds, and each is a test and validation user of the models that are fitted on "
        "the other folds. 0: never.",
    )
    held_out_users: int | None = Field(None, ge=1, description="liang2018: users in each of validation and test.")
    min_user_edges: int = Field(0, ge=0, description="Leave out users with fewer edges, after the items.")
    min_item_edges: int = Field(0, ge=0, description="Leave out items with fewer edges.")
    validation: Literal["auto", "random", "latest"] = Field(
        "auto",
        description="What settings are chosen by under given and next_events, a part of the training edges. `random`: "
        "a fifth of each user's. `latest`: under given the last fifth of each user's, by their places in the lines of "
        "adjacency lists, or by time; under next_events those of the last days. `auto`: latest, under given where a "
        "test finds that items drift along the lines, under next_events where 100 users or more can judge by it.",
    )
    order: bool | Literal["auto"] = Field(
        False,
        description="Keep with the matrices in which order each user came to like the items. `auto`: where events have "
        "times, or logs are adjacency lists; what has one time has no order. True: without times also by the lines of "
        "the logs. A run sets auto for a model that reads the order, and where its search may choose a "
        "recency_exponent, under given and next_events, unless this is set.",
    )

    def require_used(self, given: Mapping[str, Any]) -> None:
        """Reject a user's setting that the scheme does not read; a data set's file may have it for the other scheme.

        Raises:
            InputError: naming the setting and both schemes.
        """
        for name, scheme in SCHEME_BY_SETTING.items():
            if given.get(name) is not None and self.scheme != scheme:
                raise InputError(
                    f"setting split.{name} = {given[name]}: is read by split.scheme = {scheme} alone, and this run has "
                    f"split.scheme = {self.scheme}. Set split.scheme = {scheme}, or leave split.{name} out."
                )
