"""The studies of a data set, in `<home>/<dataset>/tuning/study.db`: Optuna's own tables, for its own tools too.

A trial is kept when it has ended. One that was cut off leaves nothing, and is asked for again with the same settings.
"""

import dataclasses
import functools
from datetime import timedelta

import optuna
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix
from sqlalchemy import URL

from tasks.stores.home import Home
from tasks.tuning.proposals import asked
from tasks.tuning.ranges import distribution
from tasks.tuning.search import Asked, Made, Outcome, Search, best_of

optuna.logging.disable_default_handler()  # the flow says what happens

STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class Study:
    """One study in the home's database, created where it does not exist."""

    def __init__(self, home: Home, search: Search) -> None:
        self.search = search
        self._storage = _memory() if search.short else _storage(home)
        self._study = optuna.create_study(
            storage=self._storage, study_name=search.study, direction="maximize", load_if_exists=True
        )

    def forget(self) -> None:
        """Delete the study."""
        optuna.delete_study(study_name=self.search.study, storage=self._storage)

    def outcomes(self) -> list[Outcome]:
        """The outcomes of the trials that ended, in their order."""
        return [outcome for outcome, _ in self._ended()]

    def best(self) -> Outcome | None:
        """The trial with the highest value, the first of equals; None where no trial was fitted to its end."""
        return best_of(self.outcomes())

    def other_source(self) -> int:
        """How many trials were made by another version of the model's source."""
        return sum(trial.user_attrs["source"] != self.search.source for _, trial in self._ended())

    def ask(self, trials: int, interactions: csr_matrix) -> list[Asked]:
        """The trials that the round which is under way lacks, or those of the next one; none where all have ended.

        Args:
            trials: of the study in all, those that ended included.
            interactions: what they are fitted on.
        """
        ended, together = self._ended(), self.search.together
        first, of_earlier_rounds = len(ended) + 1, len(ended) // together * together
        start = self.search.start.model_dump(mode="json")
        begins = all(outcome.settings != start for outcome, _ in ended)
        return [
            asked(self.search, number, ended[:of_earlier_rounds], interactions if begins and number == first else None)
            for number in range(first, min(of_earlier_rounds + together, trials) + 1)
        ]

    def tell(self, made: Made) -> None:
        """Keep a trial, whole or not at all; those of a round in their order."""
        outcome = made.outcome
        trial = optuna.trial.create_trial(
            state=STATES[outcome.state],
            value=outcome.value,
            params=made.asked.params,
            distributions={name: distribution(range_) for name, range_ in self.search.space.items()},
            user_attrs={"source": self.search.source, "outcome": dataclasses.asdict(outcome)},
            intermediate_values=made.checkpoints,
        )
        trial.datetime_start = trial.datetime_complete - timedelta(seconds=outcome.seconds)
        self._study.add_trial(trial)

    def _ended(self) -> list[tuple[Outcome, FrozenTrial]]:
        """The trials that count: earlier versions left some without an outcome, which were cut off."""
        trials = self._study.get_trials(deepcopy=False)
        return [(Outcome(**one.user_attrs["outcome"]), one) for one in trials if "outcome" in one.user_attrs]


@functools.lru_cache(maxsize=1)
def _storage(home: Home) -> optuna.storages.RDBStorage:
    home.tuning.mkdir(parents=True, exist_ok=True)
    url = URL.create("sqlite", database=str(home.tuning.resolve() / "study.db"))
    return optuna.storages.RDBStorage(url.render_as_string())


@functools.lru_cache(maxsize=1)
def _memory() -> optuna.storages.InMemoryStorage:
    return optuna.storages.InMemoryStorage()
