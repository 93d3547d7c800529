"""A linear scale, on which the page draws means with their error bars in HTML."""

from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from oneclass.tasks.html import numbers

ERRORS_PER_BAR = 2  # standard errors to each side, about 95 %
MAX_TICKS = 5


@dataclass(frozen=True)
class Scale:
    """A linear scale from `low` at the left to `high` at the right.

    Attributes:
        ticks: values with a mark.
        digits: decimals of the tick labels.
        reference: the value of popularity, drawn as a dashed line.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    digits: int
    reference: float | None = None

    def position(self, value: float) -> str:
        """Return the position of a value, in per cent of the width."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"

    def axis(self) -> Markup:
        """Draw the labels of the ticks."""
        labels = "".join(
            f'<text x="{self.position(tick)}" y="11" '
            f'text-anchor="middle">{numbers.format_fixed(tick, self.digits)}</text>'
            for tick in self.ticks
        )
        return Markup(f'<svg class="axis" aria-hidden="true">{labels}</svg>')

    def dot(self, value: float, error: float | None) -> Markup:
        """Draw a value with its error bar."""
        parts = [
            f'<line class="tick" x1="{self.position(tick)}" x2="{self.position(tick)}" y1="0" y2="100%"/>'
            for tick in self.ticks
        ]
        if self.reference is not None:
            x = self.position(self.reference)
            parts.append(f'<line class="reference" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
        if error:
            left, right = self.position(value - ERRORS_PER_BAR * error), self.position(value + ERRORS_PER_BAR * error)
            parts.append(f'<line class="bar" x1="{left}" x2="{right}" y1="50%" y2="50%"/>')
        parts.append(f'<circle cx="{self.position(value)}" cy="50%" r="4.5"/>')
        return Markup(f'<svg class="dot" aria-hidden="true">{"".join(parts)}</svg>')


def fit_scale(cells: list[tuple[float, float | None]], reference: float | None = None) -> Scale:
    """Return a scale that covers every mean with its error bar."""
    ends = [value + sign * ERRORS_PER_BAR * (error or 0.0) for value, error in cells for sign in (-1, 1)]
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 0.01
    low, high = low - margin, high + margin
    rough = (high - low) / MAX_TICKS
    power = floor(log10(rough))
    step = next(factor * 10.0**power for factor in (1, 2, 2.5, 5, 10) if factor * 10.0**power >= rough)
    ticks = tuple(number * step for number in range(ceil((low + margin) / step), floor((high - margin) / step) + 1))
    return Scale(low, high, ticks, max(0, -floor(log10(step)) + (step / 10.0 ** floor(log10(step)) == 2.5)), reference)
