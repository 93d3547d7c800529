"""The figure of the main metric: every ranked list with what two standard errors leave open."""

from tasks.main_table import MainRow
from tasks.report.drawing import Panel, few_ticks, mark, panel
from tasks.report.figures import Figure


def named(model: str, score: str) -> str:
    return model if score == "score" else f"{model}, {score}"


def intervals(tables: dict[str, list[MainRow]]) -> Figure:
    """The first main metric of every ranked list, with what two standard errors leave open."""
    return Figure(
        "intervals",
        "How sure the main metric is",
        see=" ".join(_open_sentence(protocol, rows) for protocol, rows in tables.items()),
        how="A dot is the mean over test users, its bar two standard errors to each side, about 95 %. Bars that "
        "overlap do not settle a comparison, for all models meet the same users; the paired differences below do.",
        table="evaluation.metrics",
        absent="No user had anything held out, so nothing was evaluated.",
        panels=[_intervals(protocol, rows) for protocol, rows in tables.items()],
    )


def _open_sentence(protocol: str, rows: list[MainRow]) -> str:
    level = sum(row.standing == "level" for row in rows)
    best = named(rows[0].model, rows[0].score)
    if len(rows) == 1:
        return f"On {protocol}, {best} is alone."
    others = f"and {level} of the {len(rows) - 1} other lists are not significantly worse" if level else "alone"
    return f"On {protocol}, {best} leads {others}."


def _intervals(protocol: str, rows: list[MainRow]) -> Panel:
    metric = next(iter(rows[0].cells))
    drawn = panel(f"intervals-{protocol}", f"{metric} of every list on {protocol}, with two standard errors",
                  width=4.5, height=0.9 + 0.19 * len(rows), left=2.1)  # fmt: skip
    axes = drawn.axes
    for place, row in enumerate(rows):
        value, error = row.cells[metric]
        looks = mark(row.model)
        axes.errorbar(value, place, xerr=2 * (error or 0.0), color=looks.colour, marker=looks.marker, elinewidth=1.4)
    axes.set_yticks(range(len(rows)), [named(row.model, row.score) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set(title=protocol, xlabel=metric)
    axes.grid(visible=False, axis="y")
    few_ticks(axes, "x")
    return drawn
