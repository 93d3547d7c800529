"""The studies of a data set, in `<home>/<dataset>/tuning/study.db`: Optuna's own tables, for its own tools too.

A trial is kept when it has ended. One that was cut off leaves nothing, and is asked for again with the same settings.
"""

import dataclasses
import functools
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix
from sqlalchemy import URL

from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.sampler import suggest, to_distribution
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, TrialResult, best_outcome

optuna.logging.disable_default_handler()  # the flow says what happens

TRIAL_STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class Study:
    """One study in the home's database, created where it does not exist."""

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
        """The outcomes of the trials that ended, in their order."""
        return [outcome for outcome, _ in self._ended()]

    def best(self) -> TrialOutcome | None:
        """The trial with the highest value, the first of equals; None where no trial was fitted to its end."""
        return best_outcome(self.outcomes())

    def other_source(self) -> int:
        """How many trials were made by another version of the model's source."""
        return sum(trial.user_attrs["source"] != self.search.source for _, trial in self._ended())

    def ask(self, trials: int, interactions: csr_matrix) -> list[Trial]:
        """The trials that the round which is under way lacks, or those of the next one; none where all have ended.

        Args:
            trials: of the study in all, those that ended included.
            interactions: what they are fitted on.
        """
        ended, batch_size = self._ended(), self.search.batch_size
        first, of_earlier_rounds = len(ended) + 1, len(ended) // batch_size * batch_size
        start = self.search.start.model_dump(mode="json")
        begins = all(outcome.settings != start for outcome, _ in ended)
        return [
            suggest(
                self.search, number, ended[:of_earlier_rounds], interactions if begins and number == first else None
            )
            for number in range(first, min(of_earlier_rounds + batch_size, trials) + 1)
        ]

    def record_trial(self, made: TrialResult) -> None:
        """Keep a trial, whole or not at all; those of a round in their order."""
        outcome = made.outcome
        trial = optuna.trial.create_trial(
            state=TRIAL_STATES[outcome.state],
            value=outcome.value,
            params=made.asked.params,
            distributions={name: to_distribution(range_) for name, range_ in self.search.space.items()},
            user_attrs={"source": self.search.source, "outcome": dataclasses.asdict(outcome)},
            intermediate_values=made.checkpoints,
        )
        assert trial.datetime_complete is not None
        trial.datetime_start = trial.datetime_complete - timedelta(seconds=outcome.seconds)
        self._study.add_trial(trial)

    def _ended(self) -> list[tuple[TrialOutcome, FrozenTrial]]:
        """The trials that count: earlier versions left some without an outcome, which were cut off."""
        trials = self._study.get_trials(deepcopy=False)
        return [(TrialOutcome(**one.user_attrs["outcome"]), one) for one in trials if "outcome" in one.user_attrs]


@functools.lru_cache(maxsize=1)
def _open_storage(home: Home) -> optuna.storages.RDBStorage:
    home.tuning.mkdir(parents=True, exist_ok=True)
    url = URL.create("sqlite", database=str(home.tuning.resolve() / "study.db"))
    return optuna.storages.RDBStorage(url.render_as_string())


@functools.lru_cache(maxsize=1)
def _open_memory_storage() -> optuna.storages.InMemoryStorage:
    return optuna.storages.InMemoryStorage()


def write_best_settings(
    home: Home, search: Search, study: Study, fixed: set[str], users: int, command: str
) -> Path | None:
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
    lines = [f"# {line}" for line in _format_comment(search, best, outcomes, users, command)]
    lines += [f"[{search.model}]"]
    lines += [f"{name} = {json.dumps(best.settings[name])}" for name in names if best.settings[name] is not None]
    path = home.tuning / f"{search.model}.toml"
    partial = path.with_suffix(".partial")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def format_trials(search: Search, outcomes: list[TrialOutcome], best: int = 10) -> str:
    """The best trials, best first, one a line under a heading."""
    done = sorted((one for one in outcomes if one.state == "done"), key=lambda one: (-(one.value or 0.0), one.number))[
        :best
    ]
    rows = [["trial", f"validation {search.metric}", "score", *search.space, "seconds"]]
    for one in done:
        error = "" if one.standard_error is None else f" ± {one.standard_error:.4f}"
        values = [format_setting(one.settings[name]) for name in search.space]
        rows.append([str(one.number), f"{one.value:.4f}{error}", one.score, *values, f"{one.seconds:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{search.model} on {search.protocol}: {format_trial_counts(outcomes)}", "", *lines])


def format_trial_counts(outcomes: list[TrialOutcome]) -> str:
    """Such as `20 trials, 6 of them pruned, 1 failed`."""
    numbers = {state: sum(one.state == state for one in outcomes) for state in ("pruned", "failed")}
    aside = ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
    return f"{len(outcomes)} trials" + (f" ({aside})" if aside else "")


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


def format_setting(value: Any) -> str:
    """A setting for a line of text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
