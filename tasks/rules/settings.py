"""The settings `[rules]` and `[placements.NAME]` of a data set's file; docs/how-to/rules.md explains the keys."""

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Limits = dict[str, Annotated[int, Field(ge=1)]]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Boost(_Declared):
    """Items to raise."""

    when: str
    by: float = Field(allow_inf_nan=False)


class ListRules(_Declared):
    """What holds for all lists, or for those of one placement."""

    eligible: str = ""
    boosts: tuple[Boost, ...] = ()
    max_per_category: Limits = {}


class Rules(ListRules):
    """Rules that hold for every list."""

    pinned: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    not_event: tuple[str, ...] = ()
    again_after_days: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    request_filters: tuple[str, ...] = ()


class Placement(ListRules):
    """A place that shows a list of its own, such as the home page."""

    n: int | None = Field(default=None, ge=1, le=1000)
    diversity: float | None = Field(default=None, ge=0, le=1)


class DeclaredRules(_Declared):
    """The rules of a data set, and those of its placements by name."""

    rules: Rules = Rules()
    placements: dict[str, Placement] = {}
    cold_share: float = 1.0
    """Of `publish.cold_share`."""

    @property
    def are_empty(self) -> bool:
        """Whether there are no rules and no placements."""
        return self.rules == Rules() and not self.placements

    def count_new(self, n: int) -> int:
        """Return how many new items a list of n items may have."""
        return math.floor(self.cold_share * n + 1e-9)

    def count_items(self, placement: str | None, default: int) -> int:
        """Return how many items a list has: those of its placement, else the default."""
        return (placement and self.placements[placement].n) or default

    def with_sizes(self, n: int) -> "DeclaredRules":
        """Return the rules with a number of items for each placement, by default n."""
        sized = {name: of.model_copy(update={"n": of.n or n}) for name, of in self.placements.items()}
        return self.model_copy(update={"placements": sized})


NO_RULES = DeclaredRules()
