"""The ladder's table: medians and spread over the runs, the ratio to the machine's limit, the slope against the rung
below.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.scale.workloads.apart import Took
from benchmarks.scale.workloads.logs import Rung

COLUMNS = ("log", "what", "s", "CPU s", "peak MB", "limit", "its CPU s", "ratio", "slope", "nDCG@100")
Rows = dict[str, list[Took]]  # by what was done, what each run of it took


def head() -> str:
    """The two lines above the rows."""
    return f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def lines(rung: Rung, rows: Rows, below: tuple[Rung, Rows] | None) -> list[str]:
    """The rows of one rung.

    Args:
        below: the rung of fewer edges and as many items, and its rows.
    """
    return [_line(rung, what, runs, below) for what, runs in rows.items()]


def _line(rung: Rung, what: str, runs: Sequence[Took], below: tuple[Rung, Rows] | None) -> str:
    if why := next((run.why for run in runs if run.why), None):
        return f"| {rung.name} | {what} | {why.replace('|', '/')} |" + " |" * (len(COLUMNS) - 3)
    cpu, limit_cpu = _median(runs, "cpu"), _median(runs, "limit_cpu")
    cells = (
        rung.name,
        what,
        _spread(runs, "seconds", "{:.2f}".format),
        _spread(runs, "cpu", "{:.3f}".format),
        _spread(runs, "peak", lambda size: f"{size / 1e6:.0f}"),
        runs[0].limit or "-",
        "-" if not limit_cpu else f"{limit_cpu:.3g}",
        "-" if not limit_cpu else f"{cpu / limit_cpu:.3g}",
        _slope(rung, cpu, what, below),
        _spread(runs, "ndcg", "{:.4f}".format),
    )
    return f"| {' | '.join(cells)} |"


def _values(runs: Sequence[Took], name: str) -> list[float]:
    return [value for run in runs if (value := getattr(run, name)) is not None]


def _median(runs: Sequence[Took], name: str) -> float | None:
    values = _values(runs, name)
    return median(values) if values else None


def _spread(runs: Sequence[Took], name: str, shown: Callable[[float], str]) -> str:
    """The median, and least and most where there are several and they differ as shown."""
    values = _values(runs, name)
    if not values:
        return "-"
    least, most = shown(min(values)), shown(max(values))
    return shown(median(values)) + (f" ({least} to {most})" if least != most else "")


def _slope(rung: Rung, cpu: float, what: str, below: tuple[Rung, Rows] | None) -> str:
    """The power of the edges with which CPU seconds grow from the rung below."""
    earlier = _median(below[1].get(what, ()), "cpu") if below else None
    if not earlier or not cpu:
        return "-"
    return f"{math.log(cpu / earlier) / math.log(rung.edges / below[0].edges):.2f}"
