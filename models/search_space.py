"""The values that tuning tries for the settings of a model: for each setting a range, or a list of choices.

A range or choice that is `by_hand` is left alone by the search that a run makes by itself: with some of its values a fit
takes longer, or a like probability means something else.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The numbers from `low` to `high`, both included; only whole numbers if both ends are whole.

    Attributes:
        log: search the logarithm of the setting, for settings whose order of magnitude matters.
    """

    low: float
    high: float
    log: bool = False
    by_hand: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"a span from {self.low} to {self.high}: low must be below high" + (", and above 0" if self.log else "")
            )


@dataclass(frozen=True)
class Multiple:
    """Multiples of the value that a setting's rule takes from the log (`ModelSettings.resolve`), on a logarithmic scale.

    Attributes:
        most: the smallest multiple is 1 / most.
        largest: the largest one, for settings with more of which a fit takes longer; `most` by default.
    """

    most: float
    by_hand: bool = False
    largest: float | None = None

    @property
    def span(self) -> Span:
        """The multiples."""
        return Span(1 / self.most, self.largest or self.most, log=True)


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]
    by_hand: bool = False


Range = Span | Multiple | Choice
SearchSpace = dict[str, Range]
