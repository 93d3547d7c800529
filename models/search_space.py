"""Where a model's settings are searched when it is tuned: one range or list of choices a setting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Every number from `low` to `high`, both included; whole numbers where both ends are whole.

    Attributes:
        log: spread evenly over the logarithm, for settings whose order of magnitude matters.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a span from {self.low} to {self.high}" + (" in logarithms" if self.log else ""))


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]


SearchSpace = dict[str, Span | Choice]
