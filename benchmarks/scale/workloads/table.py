"""The ladder's table: medians and spread over the runs, the ratio to the machine's limit, and the slope."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.scale.workloads.processes import Measurement

COLUMNS = ("log", "what", "s", "CPU s", "peak MB", "limit", "its CPU s", "ratio", "slope", "nDCG@100")
LIKES_PER_USER = 40  # as in the demo's log
Rows = dict[str, list[Measurement]]  # the runs of each row, by its label


@dataclass(frozen=True)
class LogSize:
    """The size of a generated log."""

    edges: int
    items: int

    @property
    def users(self) -> int:
        """The number of users."""
        return max(2, round(self.edges / LIKES_PER_USER))

    @property
    def name(self) -> str:
        """The label of the log in the table."""
        return f"log, {self.edges:,} x {self.items:,}"


def format_head() -> str:
    """Format the two lines above the rows."""
    return f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def format_rows(size: LogSize, rows: Rows, smaller: tuple[LogSize, Rows] | None) -> list[str]:
    """Format the rows of one log.

    Args:
        smaller: the log of fewer edges and as many items, and its rows.
    """
    return [_format_row(size, label, runs, smaller) for label, runs in rows.items()]


def _format_row(size: LogSize, label: str, runs: Sequence[Measurement], smaller: tuple[LogSize, Rows] | None) -> str:
    if error := next((run.error for run in runs if run.error), None):
        return f"| {size.name} | {label} | {error.replace('|', '/')} |" + " |" * (len(COLUMNS) - 3)
    cpu, limit_cpu = _compute_median(runs, "cpu"), _compute_median(runs, "limit_cpu")
    cells = (
        size.name,
        label,
        _format_spread(runs, "wall", "{:.2f}".format),
        _format_spread(runs, "cpu", "{:.3f}".format),
        _format_spread(runs, "peak_bytes", lambda size: f"{size / 1e6:.0f}"),
        runs[0].limit or "-",
        f"{limit_cpu:.3g}" if limit_cpu else "-",
        f"{cpu / limit_cpu:.3g}" if limit_cpu else "-",
        _format_slope(size, cpu, label, smaller),
        _format_spread(runs, "ndcg", "{:.4f}".format),
    )
    return f"| {' | '.join(cells)} |"


def _list_values(runs: Sequence[Measurement], name: str) -> list[float]:
    return [value for run in runs if (value := getattr(run, name)) is not None]


def _compute_median(runs: Sequence[Measurement], name: str) -> float | None:
    values = _list_values(runs, name)
    return median(values) if values else None


def _format_spread(runs: Sequence[Measurement], name: str, form: Callable[[float], str]) -> str:
    """Format the median, and the least and the most if they differ as printed."""
    values = _list_values(runs, name)
    if not values:
        return "-"
    least, most = form(min(values)), form(max(values))
    return form(median(values)) + (f" ({least} to {most})" if least != most else "")


def _format_slope(size: LogSize, cpu: float, label: str, smaller: tuple[LogSize, Rows] | None) -> str:
    """Format the power of the edges with which CPU seconds grow from the smaller log."""
    earlier = _compute_median(smaller[1].get(label, ()), "cpu") if smaller else None
    if not earlier or not cpu:
        return "-"
    return f"{math.log(cpu / earlier) / math.log(size.edges / smaller[0].edges):.2f}"
