"""Split, fit and rank in memory by the code of the pipeline's stages, so that the numbers are those of a run."""

import logging
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import numpy as np
import polars as pl
from optuna.trial import FrozenTrial

from oneclass import sql
from oneclass.interactions import Interactions, encode_attributes
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import LogSize
from oneclass.models.settings import ModelSettings, SearchSpace
from oneclass.splits import Split
from oneclass.tasks import memory_errors
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import rewrite_interactions
from oneclass.tasks.binarize.weights import LikeSelection
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate import own_metrics, stage
from oneclass.tasks.evaluate.jobs import PendingEvaluation, evaluate_in_process
from oneclass.tasks.evaluate.ranking import RankedTargets
from oneclass.tasks.evaluate.strata import StratumRow
from oneclass.tasks.metric_registry import ChosenMetrics
from oneclass.tasks.protocols import find_validation_splits, list_splits
from oneclass.tasks.split.features import Features
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, rewrite_splits
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import find_validation_users
from oneclass.tasks.tuning.search import Search, suggest_trial
from oneclass.tasks.tuning.trial import fit_trial
from oneclass.tasks.tuning.validation import select_validation

SMALLEST_WEIGHT = 1e-9  # a pair with a smaller sum of weights is no like

logger = logging.getLogger(__name__)
log_of_stages = logging.getLogger("oneclass")


@dataclass(frozen=True)
class SplitLog:
    """Interactions that a protocol has split.

    Attributes:
        tested: the splits with a test part.
        validated: those by whose validation parts settings are chosen; mostly the same.
        ids: of users and items by index, texts or numbers as in the interactions.
    """

    tested: list[SplitMatrices]
    validated: list[SplitMatrices]
    ids: own_metrics.IdsByIndex

    @property
    def splits(self) -> list[SplitMatrices]:
        """All splits that models are fitted on, those with a test part first."""
        return [*self.tested, *(split for split in self.validated if not any(split is one for one in self.tested))]


def split_in_memory(
    data: Interactions | Split, protocol: str, settings: SplitSettings, seed: int, threads: int, **more: Any
) -> SplitLog:
    """Split interactions as a run splits a log of the same events.

    Args:
        protocol: `given` for a `Split`.
        more: further fields of the `SplitPlan`.

    Raises:
        ValueError: the interactions are too few for the protocol, or lack what it needs.
    """
    kept: dict[str, SplitMatrices] = {}

    def keep(split: SplitMatrices) -> Future[str]:
        kept[split.protocol] = split
        (done := Future()).set_result("")
        return done

    tables = [data.train, data.test] if isinstance(data, Split) else [data]
    config: dict[str, Any] = {"threads": threads, "temp_directory": tempfile.gettempdir()}
    with _quiet_stages(), duckdb.connect(config=config) as connection:
        for statements in ("set TimeZone = 'UTC'", *sql.schema()):
            connection.execute(statements)
        for number, table in enumerate(tables, 1):
            _insert_events(connection, table.events, number)
        is_weighted = "weight" in tables[0].events.columns
        sums = {"sum_values": True, "threshold": SMALLEST_WEIGHT} if is_weighted else {}
        likes = BinarizeSettings.model_validate(sums)
        rewrite_interactions(connection, likes, None, None)
        types, texts = tables[0].events.schema, own_metrics.load_ids(connection)
        users, items = (
            pl.Series(ids, dtype=pl.String).cast(types[name])
            for name, ids in zip(("user_id", "item_id"), texts, strict=True)
        )
        features = Features(encode_attributes(tables[0].items, items))
        given = ([1], [2]) if isinstance(data, Split) else None
        plan = SplitPlan(settings, [protocol], seed, LikeSelection(likes), given_files=given, **more)
        rewrite_splits(connection, plan, keep, features)
    if not (tested := list_splits(protocol, kept)):
        raise ValueError(f"{protocol}: no edge is left to train on; the interactions are too few for this protocol")
    validated = find_validation_splits(protocol, kept)
    ids = own_metrics.IdsByIndex(users.to_list(), items.to_list())
    return SplitLog([kept[name] for name in tested], [kept[name] for name in validated], ids)


def _insert_events(connection: duckdb.DuckDBPyConnection, events: pl.DataFrame, file_id: int) -> None:
    """Insert events as the log with this number, a line for each in their order."""
    cells = {
        "user_id": events["user_id"].cast(pl.String),
        "item_id": events["item_id"].cast(pl.String),
        "value": events["weight"] if "weight" in events.columns else pl.repeat(1.0, len(events), eager=True),
        "file_id": pl.repeat(file_id, len(events), dtype=pl.Int64, eager=True),
        "line_number": np.arange(1, len(events) + 1),
        **({"occurred_at": events["time"]} if "time" in events.columns else {}),
    }
    connection.register("incoming", pl.DataFrame(cells))
    connection.execute("insert into raw.events by name from incoming")
    connection.unregister("incoming")


@contextmanager
def _quiet_stages() -> Generator[None]:
    """Leave out the log lines of stages, which Prefect prints, and raise `InputError` as that of wrong arguments.

    Its advice is of settings of a run; one with a cause is that of a metric of one's own.
    """
    level = log_of_stages.level
    log_of_stages.setLevel(max(level, logging.WARNING))
    try:
        yield
    except InputError as error:
        raise (error.__cause__ or ValueError(str(error))) from error
    finally:
        log_of_stages.setLevel(level)


def fit_models(
    split: SplitMatrices,
    models: Mapping[str, Model],
    failed: dict[str, str],
    threads: int,
    on_fit: Callable[[str], None],
) -> dict[str, Model]:
    """Fit copies of the models on a split; the errors of those that cannot be fitted go to `failed`.

    Args:
        on_fit: called with the name of each model before its fit.

    Raises:
        OneclassError: no model can be fitted.
    """
    fitted: dict[str, Model] = {}

    def find_component(name: str, settings: ModelSettings, seed: int) -> Model | None:
        same = (one for one in fitted.values() if (one.name, one.settings, one.seed) == (name, settings, seed))
        return next(same, None)

    for name, model in models.items():
        on_fit(name)
        if name in failed:
            continue
        copy = type(model)(model.settings, seed=model.seed, threads=threads)
        options = FitOptions(
            validation=find_validation_users(split),
            item_features=split.item_features,
            load_component=partial(find_component, seed=model.seed),
        )
        try:
            needed = copy.estimate_cost(copy.settings, LogSize.of(split.train)).bytes
            with memory_errors.guard_model_memory(name, needed):
                fitted[name] = copy.fit(split.histories if copy.settings.reads_times else split.train, options)
        except (ValueError, ArithmeticError, OneclassError) as error:
            failed[name] = f"{name} cannot be fitted: {error}"
            logger.warning("%s; it is left out", failed[name])
    if not fitted:
        raise OneclassError(f"no model can be fitted: {'; '.join(failed.values())}")
    return fitted


def rank_models(
    log: SplitLog,
    fits: Sequence[Mapping[str, Model]],
    metrics: ChosenMetrics,
    add_strata: Callable[[RankedTargets, np.ndarray], Iterable[StratumRow]],
) -> stage.Evaluation:
    """Rank the held-out likes of the test users by the models that were fitted on every split.

    Args:
        fits: by name, for each of `log.splits`.
        add_strata: as in `oneclass.tasks.evaluate.stage.evaluate_lists`.

    Raises:
        OneclassError: no model can be evaluated.
        Exception: that of a metric of one's own.
    """

    def submit(name: str) -> list[PendingEvaluation]:
        pending = [
            evaluate_in_process(of[name], split, metrics.by_rank) for of, split in zip(fits, log.splits, strict=True)
        ]
        if not metrics.own:
            return pending
        return [of._replace(results=own_metrics.add_own_metrics(of, metrics.own, log.ids)) for of in pending]

    names = [name for name in fits[0] if all(name in of for of in fits)]
    with _quiet_stages():
        return stage.evaluate_lists(log.splits, names, submit, add_strata)


def search_settings(
    start: Model, folds: Sequence[SplitMatrices], protocol: str, space: SearchSpace, trials: int, threads: int
) -> list[FrozenTrial]:
    """Try settings of a model on the validation parts of a protocol's splits; the first are its own.

    Raises:
        ValueError: no user has an edge to find, or no edge is left to train on.
    """
    search = Search(start.name, protocol, (), start.settings, space, start.seed)
    with _quiet_stages():
        data = [select_validation(split, protocol, start.seed, threads) for split in folds]
    ended: list[FrozenTrial] = []
    for _ in range(trials):
        trial = suggest_trial(search, ended, data[0].train)
        ended.append(fit_trial(search, trial, data, type(start), threads))
    return ended
