"""The studies of `flows.tune`, in `<home>/<dataset>/tuning/study.db`, a database that Optuna's own tools can read.

A trial is recorded when it has ended. An interrupted trial leaves nothing, and is suggested again with the same
settings.
"""

import json
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial
from sqlalchemy import URL
from sqlalchemy.exc import DatabaseError

from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.protocols import (
    PROTOCOLS,
    choose_publish_protocol,
    describe_folds,
    find_validation_splits,
    list_splits,
)
from oneclass.tasks.stores import durable, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, choose_space, describe_trials, find_best_trial, run_trial

logger = logging.getLogger(__name__)


def load_search(
    home: Home, model: str, start: ModelSettings, fixed: Collection[str], protocol: str | None = None
) -> Search:
    """Load the search of a model's whole space without `fixed` settings, on the splits of the latest run.

    Args:
        protocol: the one that judges the trials; by default the one that chooses what is published.

    Raises:
        InputError: there is nothing to search, or no split of the protocol.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        # one row: the splits' digests by name, and the seed and protocol setting of the latest run
        query = (
            "select result -> 'digests', settings -> 'seed', settings -> 'publish' ->> 'protocol' "
            "from operations.stage_results, operations.runs "
            "where stage = 'split' and (settings -> 'publish') is not null order by started_at desc limit 1"
        )
        found = connection.execute(query).fetchone()
    digests = json.loads(found[0]) if found else {}
    if found is None or not all(matrices.has_split(home, digest) for digest in digests.values()):
        raise InputError(f"{home.dataset}: no run has left splits to search on. Run flows.backfill first.")
    split_by = [name for name in PROTOCOLS if list_splits(name, digests)]
    protocol = protocol or choose_publish_protocol(found[2], digests) or next(iter(split_by), None)
    if protocol not in split_by:
        raise InputError(f"--protocol {protocol}: the latest run has no split of it; it has {', '.join(split_by)}.")
    folds = tuple(digests[split] for split in find_validation_splits(protocol, digests))
    declared = choose_space(start, matrices.load_split(home, folds[0], parts=()))
    if not declared:
        known = [name for name in MODELS if MODELS[name].Settings.search_space]
        raise InputError(f"--model {model}: has no settings to tune. Models that have: {', '.join(known)}.")
    space = {name: range_ for name, range_ in declared.items() if name not in fixed}
    if not space:
        raise InputError(f"--set: fixes every setting of {model} that is searched, {', '.join(declared)}.")
    return Search(model, protocol, folds, start, space, int(found[1]))


def run_study(home: Home, search: Search, trials: int, fixed: Collection[str]) -> Path:
    """Run trials until the search's study has so many, and return the file with the best and the `fixed` settings.

    Raises:
        InputError: the log is too small to tune on.
        OneclassError: every trial failed.
    """
    if not (users := search.count_users(home)):
        raise InputError("no validation user has an edge to be found; the log is too small to tune on.")
    study = open_study(home, search)
    by, names = f"{search.metric} of {users:,} validation users{describe_folds(len(search.digests))}", search.space
    logger.info("tuning %s by %s (%s), over %s", search.model, by, search.protocol, ", ".join(names))
    if study.trials:
        logger.info("the study has %d trials already, of %d", len(study.trials), trials)
    file = write_best_settings(home, search, ended := study.trials, fixed, users)
    while len(ended) < trials:
        study.add_trial(run_trial(home, search, ended))
        file = write_best_settings(home, search, ended := study.trials, fixed, users)
    if file is None:
        raise OneclassError(f"tune: every trial of {search.model} failed. The last: {ended[-1].user_attrs['note']}")
    return file


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
    home: Home, search: Search, trials: Sequence[FrozenTrial], fixed: Collection[str], users: int
) -> Path | None:
    """Write `<home>/<dataset>/tuning/<model>.toml` atomically; returns its path, or None if no trial completed."""
    if not (found := find_best_trial(trials)):
        return None
    rows = describe_trials(trials)
    first, best = rows[0], rows[list(trials).index(found)]
    error = "" if best["standard_error"] is None else f" ± {best['standard_error']:.4f}"
    written = {name: of for name, of in best["settings"].items() if name in search.space or name in fixed}
    lines = [
        f"# Trial {best['number']}, the best of {len(rows)} trials: {search.metric} {best['value']:.4f}{error}",
        f"# by {best['score']}, of {users:,} validation users ({search.protocol}).",
        f"# Trial 1, the settings that the search began at: {first['note'] or format(first['value'], '.4f')}.",
        f"[{search.model}]",
        *(f"{name} = {json.dumps(value)}" for name, value in written.items() if value is not None),
    ]
    path = home.tuning / f"{search.model}.toml"
    durable.write_text(path.with_suffix(".partial"), path, "\n".join(lines) + "\n")
    return path
