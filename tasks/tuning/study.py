"""The studies of a data set, in `<home>/<dataset>/tuning/study.db`, a database that Optuna's own tools can read.

A trial is recorded when it has ended. An interrupted trial leaves nothing, and is suggested again with the same
settings.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix
from sqlalchemy import URL

from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.sampler import suggest, to_distribution
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, TrialResult, best_outcome, format_setting

logger = logging.getLogger(__name__)
optuna.logging.disable_default_handler()  # the flow logs the trials

TRIAL_STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class Study:
    """One study in the home's database, created if absent."""

    def __init__(self, home: Home, search: Search) -> None:
        self.search = search
        self._storage = _open_memory_storage() if search.quick else _open_storage(home)
        self._study = optuna.create_study(
            storage=self._storage, study_name=search.study, direction="maximize", load_if_exists=True
        )

    def delete(self) -> None:
        """Delete the study."""
        optuna.delete_study(study_name=self.search.study, storage=self._storage)

    def outcomes(self) -> list[TrialOutcome]:
        """Return the outcomes of the ended trials, in their order."""
        return [outcome for outcome, _ in self._list_ended()]

    def best(self) -> TrialOutcome | None:
        """Return the trial with the highest value, the first of equals; None if no trial completed."""
        return best_outcome(self.outcomes())

    def count_other_source(self) -> int:
        """Count the trials that another version of the model's source made."""
        return sum(trial.user_attrs["source"] != self.search.source for _, trial in self._list_ended())

    def ask(self, trials: int, interactions: csr_matrix) -> list[Trial]:
        """Suggest the trials missing from the current batch, or those of the next one; empty at the end.

        Args:
            trials: total number of the study's trials, with the ended ones.
            interactions: the matrix they are fitted on.
        """
        ended, batch_size = self._list_ended(), self.search.batch_size
        first, num_earlier = len(ended) + 1, len(ended) // batch_size * batch_size
        start = self.search.start.model_dump(mode="json")
        lacks_initial = all(outcome.settings != start for outcome, _ in ended)
        return [
            suggest(
                self.search, number, ended[:num_earlier], interactions if lacks_initial and number == first else None
            )
            for number in range(first, min(num_earlier + batch_size, trials) + 1)
        ]

    def record_trial(self, result: TrialResult) -> None:
        """Record a trial atomically; those of a batch come in their order."""
        trial = to_optuna_trial(self.search, result)
        trial.user_attrs |= {"source": self.search.source, "outcome": dataclasses.asdict(result.outcome)}
        self._study.add_trial(trial)

    def _list_ended(self) -> list[tuple[TrialOutcome, FrozenTrial]]:
        """Return the ended trials; studies of earlier versions also hold interrupted ones, without an outcome."""
        trials = self._study.get_trials(deepcopy=False)
        return [
            (TrialOutcome(**trial.user_attrs["outcome"]), trial) for trial in trials if "outcome" in trial.user_attrs
        ]


def to_optuna_trial(search: Search, result: TrialResult) -> FrozenTrial:
    """Return an ended trial in Optuna's form, by which `suggest` knows it."""
    trial = optuna.trial.create_trial(
        state=TRIAL_STATES[result.outcome.state],
        value=result.outcome.value,
        params=result.trial.params,
        distributions={name: to_distribution(range_) for name, range_ in search.space.items()},
        intermediate_values=result.checkpoints,
    )
    assert trial.datetime_complete is not None
    trial.datetime_start = trial.datetime_complete - timedelta(seconds=result.outcome.seconds)
    return trial


@functools.lru_cache(maxsize=1)
def _open_storage(home: Home) -> optuna.storages.RDBStorage:
    durable.make_folder(home.tuning)
    database = home.tuning.resolve() / "study.db"
    _set_damaged_aside(database)
    return optuna.storages.RDBStorage(URL.create("sqlite", database=str(database)).render_as_string())


def _set_damaged_aside(database: Path) -> None:
    """Rename a database that SQLite cannot read, so that the search begins anew with an empty one."""
    if not database.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            ((found, *_),) = connection.execute("pragma quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found == "ok":
        return
    aside = database.with_name(f"{database.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.unreadable")
    for path in (database, database.with_name(f"{database.name}-journal")):
        if path.exists():
            path.rename(aside if path == database else aside.with_name(f"{aside.name}-journal"))
    logger.warning(
        "%s: is damaged (%s) and set aside as %s. Its trials are made again; put a copy of it back to keep them",
        database,
        found,
        aside.name,
    )


@functools.lru_cache(maxsize=1)
def _open_memory_storage() -> optuna.storages.InMemoryStorage:
    return optuna.storages.InMemoryStorage()


def write_best_settings(
    home: Home, search: Search, study: Study, fixed: set[str], users: int, command: str
) -> Path | None:
    """Write `<home>/<dataset>/tuning/<model>.toml` atomically; returns its path, or None if no trial completed.

    Args:
        fixed: settings that the command gave and that are not searched; they are written too.
        users: number of validation users.
        command: the command that continues the study.
    """
    best, outcomes = study.best(), study.outcomes()
    if best is None:
        return None
    names = [name for name in best.settings if name in search.space or name in fixed]
    lines = [f"# {line}" for line in _format_comment(search, best, outcomes, users, command)]
    lines += [f"[{search.model}]"]
    lines += [f"{name} = {json.dumps(best.settings[name])}" for name in names if best.settings[name] is not None]
    path = home.tuning / f"{search.model}.toml"
    durable.write_text(path.with_suffix(".partial"), path, "\n".join(lines) + "\n")
    return path


def format_trials(search: Search, outcomes: list[TrialOutcome], best: int = 10) -> str:
    """Format the best trials as a table, best first."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    rows = [["trial", f"validation {search.metric}", "score", *search.space, "seconds"]]
    for trial in sorted(done, key=lambda outcome: (-(outcome.value or 0.0), outcome.number))[:best]:
        error = "" if trial.standard_error is None else f" ± {trial.standard_error:.4f}"
        values = [format_setting(trial.settings[name]) for name in search.space]
        rows.append([str(trial.number), f"{trial.value:.4f}{error}", trial.score, *values, f"{trial.seconds:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{search.model} on {search.protocol}: {format_trial_counts(outcomes)}", "", *lines])


def format_trial_counts(outcomes: list[TrialOutcome]) -> str:
    """Format the counts, such as `20 trials (6 pruned, 1 failed)`."""
    numbers = {state: sum(outcome.state == state for outcome in outcomes) for state in ("pruned", "failed")}
    incomplete = ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
    return f"{len(outcomes)} trials" + (f" ({incomplete})" if incomplete else "")


def _format_comment(
    search: Search, best: TrialOutcome, outcomes: list[TrialOutcome], users: int, command: str
) -> list[str]:
    error = "" if best.standard_error is None else f" ± {best.standard_error:.4f}"
    lines = [
        f"validation {search.metric} {best.value:.4f}{error} by {best.score} ({search.protocol}, {users:,} users):",
        f"trial {best.number}, the best of {format_trial_counts(outcomes)}, made by",
        f"    {command}",
    ]
    first = outcomes[0]
    if first.state == "done" and first.number != best.number:
        lines.append(f"Trial 1, the settings that the search began at, had {first.value:.4f}.")
    return lines
