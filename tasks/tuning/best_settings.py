"""What tuning leaves for a reader: the file of the best settings, and a table of the best trials."""

import json
import os
from pathlib import Path
from typing import Any

from tasks.stores.home import Home
from tasks.tuning.search import Outcome, Search
from tasks.tuning.study import Study


def write(home: Home, search: Search, study: Study, fixed: set[str], users: int, command: str) -> Path | None:
    """Write `<home>/<dataset>/tuning/<model>.toml`, whole or not at all; its path, or None where no trial was fitted.

    Args:
        fixed: settings that the command gave and that are not searched; they are written too.
        users: how many validation users there are.
        command: the command that continues the study.
    """
    best, outcomes = study.best(), study.outcomes()
    if best is None:
        return None
    names = [name for name in best.settings if name in search.space or name in fixed]
    lines = [f"# {line}" for line in _comment(search, best, outcomes, users, command)]
    lines += [f"[{search.model}]"]
    lines += [f"{name} = {json.dumps(best.settings[name])}" for name in names if best.settings[name] is not None]
    path = home.tuning / f"{search.model}.toml"
    partial = path.with_suffix(".partial")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def table(search: Search, outcomes: list[Outcome], best: int = 10) -> str:
    """The best trials, best first, one a line under a heading."""
    done = sorted((one for one in outcomes if one.state == "done"), key=lambda one: (-one.value, one.number))[:best]
    rows = [["trial", f"validation {search.metric}", "score", *search.space, "seconds"]]
    for one in done:
        error = "" if one.standard_error is None else f" ± {one.standard_error:.4f}"
        values = [short(one.settings[name]) for name in search.space]
        rows.append([str(one.number), f"{one.value:.4f}{error}", one.score, *values, f"{one.seconds:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{search.model} on {search.protocol}: {counted(outcomes)}", "", *lines])


def counted(outcomes: list[Outcome]) -> str:
    """Such as `20 trials, 6 of them pruned, 1 failed`."""
    numbers = {state: sum(one.state == state for one in outcomes) for state in ("pruned", "failed")}
    aside = ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
    return f"{len(outcomes)} trials" + (f" ({aside})" if aside else "")


def _comment(search: Search, best: Outcome, outcomes: list[Outcome], users: int, command: str) -> list[str]:
    error = "" if best.standard_error is None else f" ± {best.standard_error:.4f}"
    lines = [
        f"validation {search.metric} {best.value:.4f}{error} by {best.score} ({search.protocol}, {users:,} users):",
        f"trial {best.number}, the best of {counted(outcomes)}, made by",
        f"    {command}",
    ]
    first = outcomes[0]
    if first.state == "done" and first.number != best.number:
        lines.append(f"Trial 1, the settings that the search began at, had {first.value:.4f}.")
    return lines


def short(value: Any) -> str:
    """A setting for a line of text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
