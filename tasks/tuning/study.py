"""The studies of `flows.tune`, in `<home>/<dataset>/tuning/study.db`, a database that Optuna's own tools can read.

A trial is recorded when it has ended. An interrupted trial leaves nothing, and is suggested again with the same
settings.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from sqlalchemy import URL
from sqlalchemy.exc import DatabaseError

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, describe_trials, format_setting


def open_study(home: Home, search: Search) -> optuna.Study:
    """Open a search's study in the home's database, created if absent."""
    durable.make_folder(home.tuning)
    database = home.tuning.resolve() / "study.db"
    try:
        storage = optuna.storages.RDBStorage(URL.create("sqlite", database=str(database)).render_as_string())
    except DatabaseError as error:
        advice = "Put a copy of it back, or delete it to make its trials again."
        raise OneclassError(f"{database}: is damaged ({error.orig}). {advice}") from error
    name = f"{search.model} {search.protocol} {search.compute_digest(*search.digests)}"
    return optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)


def write_best_settings(
    home: Home, search: Search, trials: Sequence[FrozenTrial], fixed: set[str], users: int, command: str
) -> Path | None:
    """Write `<home>/<dataset>/tuning/<model>.toml` atomically; returns its path, or None if no trial completed.

    Args:
        fixed: settings that the command gave and that are not searched; they are written too.
        users: number of validation users.
        command: the command that continues the study.
    """
    if not (done := _rank_trials(trials)):
        return None
    best, first = done[0], describe_trials(trials)[0]
    written = {name: of for name, of in best["settings"].items() if name in search.space or name in fixed}
    lines = [
        f"# validation {search.metric} {best['figure']} by {best['score']} ({search.protocol}, {users:,} users):",
        f"# trial {best['number']}, the best of {_count_trials(trials)}, made by",
        f"#     {command}",
        f"# Trial 1, the settings that the search began at: {first['note'] or format_setting(first['value'])}.",
        f"[{search.model}]",
        *(f"{name} = {json.dumps(value)}" for name, value in written.items() if value is not None),
    ]
    path = home.tuning / f"{search.model}.toml"
    durable.write_text(path.with_suffix(".partial"), path, "\n".join(lines) + "\n")
    return path


def format_trials(search: Search, trials: Sequence[FrozenTrial], most: int = 10) -> str:
    """Format the best trials as a table, best first."""
    rows = [["trial", f"validation {search.metric}", "score", *search.space, "seconds"]]
    for row in _rank_trials(trials)[:most]:
        settings = [format_setting(row["settings"][name]) for name in search.space]
        rows.append([str(row["number"]), row["figure"], row["score"], *settings, f"{row['seconds']:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{search.model} on {search.protocol}: {_count_trials(trials)}", "", *lines])


def _rank_trials(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """Return the rows of the completed trials, best first, with the value and its error as `figure`."""
    done = [row for row in describe_trials(trials) if row["state"] == "done"]
    for row in done:
        error = row["standard_error"]
        row["figure"] = f"{row['value']:.4f}" + ("" if error is None else f" ± {error:.4f}")
    return sorted(done, key=lambda row: -row["value"])


def _count_trials(trials: Sequence[FrozenTrial]) -> str:
    """Format the counts, such as `20 trials (6 pruned, 1 failed)`."""
    states = [row["state"] for row in describe_trials(trials)]
    incomplete = [f"{states.count(state)} {state}" for state in ("pruned", "failed") if state in states]
    return f"{len(states)} trials" + (f" ({', '.join(incomplete)})" if incomplete else "")
