"""The dot plot within the main table: every list's mean with two standard errors to each side, all on one scale."""

from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from tasks.pages import numbers

ERRORS = 2  # that a bar goes to each side, about 95 %
TICKS = 5


@dataclass(frozen=True)
class Scale:
    """From `low` at the left to `high` at the right.

    Attributes:
        ticks: values that are marked, with the digits after the point that they need.
        reference: a value to hold the others against, popularity's.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    digits: int
    reference: float | None = None

    def at(self, value: float) -> str:
        """Where a value lies, in per cent of the width."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"

    def axis(self) -> Markup:
        """The labels of the ticks."""
        labels = "".join(
            f'<text x="{self.at(tick)}" y="11" text-anchor="middle">{numbers.fixed(tick, self.digits)}</text>'
            for tick in self.ticks
        )
        return Markup(f'<svg class="axis" aria-hidden="true">{labels}</svg>')

    def dot(self, value: float, error: float | None) -> Markup:
        """One list; its figures stand beside it as text."""
        parts = [
            f'<line class="tick" x1="{self.at(tick)}" x2="{self.at(tick)}" y1="0" y2="100%"/>' for tick in self.ticks
        ]
        if self.reference is not None:
            x = self.at(self.reference)
            parts.append(f'<line class="reference" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
        if error:
            left, right = self.at(value - ERRORS * error), self.at(value + ERRORS * error)
            parts.append(f'<line class="bar" x1="{left}" x2="{right}" y1="50%" y2="50%"/>')
        parts.append(f'<circle cx="{self.at(value)}" cy="50%" r="4.5"/>')
        return Markup(f'<svg class="dot" aria-hidden="true">{"".join(parts)}</svg>')


def scale(cells: list[tuple[float, float | None]], reference: float | None = None) -> Scale:
    """The scale on which every mean with its error bar has room."""
    ends = [value + sign * ERRORS * (error or 0.0) for value, error in cells for sign in (-1, 1)]
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or 0.01
    low, high = low - room, high + room
    rough = (high - low) / TICKS
    power = floor(log10(rough))
    step = next(one * 10.0**power for one in (1, 2, 2.5, 5, 10) if one * 10.0**power >= rough)
    ticks = tuple(at * step for at in range(ceil((low + room) / step), floor((high - room) / step) + 1))
    return Scale(low, high, ticks, max(0, -floor(log10(step)) + (step / 10.0 ** floor(log10(step)) == 2.5)), reference)
