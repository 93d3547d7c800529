"""The studies of `flows.tune`, in `<home>/<dataset>/tuning/study.db`, a database that Optuna's own tools can read.

A trial is recorded when it has ended. An interrupted trial leaves nothing, and is suggested again with the same
settings.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial
from sqlalchemy import URL
from sqlalchemy.exc import DatabaseError

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, describe_trials, find_best_trial, format_setting


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
    home: Home, search: Search, trials: Sequence[FrozenTrial], fixed: set[str], users: int
) -> Path | None:
    """Write `<home>/<dataset>/tuning/<model>.toml` atomically; returns its path, or None if no trial completed.

    Args:
        fixed: settings that the command gave and that are not searched; they are written too.
        users: number of validation users.
    """
    if not (found := find_best_trial(trials)):
        return None
    rows = describe_trials(trials)
    first, best, states = rows[0], rows[list(trials).index(found)], [row["state"] for row in rows]
    incomplete = ", ".join(f"{states.count(state)} {state}" for state in ("pruned", "failed") if state in states)
    figure = f"{search.metric} {best['value']:.4f}"
    figure += "" if best["standard_error"] is None else f" ± {best['standard_error']:.4f}"
    written = {name: of for name, of in best["settings"].items() if name in search.space or name in fixed}
    lines = [
        f"# validation {figure} by {best['score']} ({search.protocol}, {users:,} users):",
        f"# trial {best['number']}, the best of {len(rows)} trials{incomplete and f' ({incomplete})'}.",
        f"# Trial 1, the settings that the search began at: {first['note'] or format_setting(first['value'])}.",
        f"[{search.model}]",
        *(f"{name} = {json.dumps(value)}" for name, value in written.items() if value is not None),
    ]
    path = home.tuning / f"{search.model}.toml"
    durable.write_text(path.with_suffix(".partial"), path, "\n".join(lines) + "\n")
    return path
