"""Evaluate and tune models on interactions: the pipeline's own stages, over a warehouse that is removed afterwards.

Events are written as a log, binarized, split, fitted on and evaluated as a run does it, so that the numbers are those
of a run on the same events with the same settings and seed.
"""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from oneclass.interactions import Interactions, attribute_kinds
from oneclass.list_heads import HeadsOfLists, check_attributes
from oneclass.models.base import Model
from oneclass.models.evaluation.list_metrics import find_list_metric
from oneclass.models.registry import MODELS
from oneclass.models.settings import SearchSpace
from oneclass.strata import check_strata, evaluate_strata
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.cluster import LOCAL
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate import stage as evaluate_stage
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import PROTOCOLS, find_validation_splits, list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.train import train
from oneclass.tasks.tuning import Search, Study, record_pending_trial, submit_trial
from oneclass.user_metrics import (
    IdsByIndex,
    OwnMetric,
    collect_ranks,
    compile_metric,
    evaluate_lists,
    name_metrics,
)

log_of_stages = logging.getLogger("oneclass")

RUN = "library"
SEPARATOR = "\x1f"  # of the names in a cell of a table of attributes; no name has it
SMALLEST_WEIGHT = 1e-9  # a pair with a smaller sum of weights is no like

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The tables of an evaluation.

    Attributes:
        metrics: a row per model, score and metric: `model`, `score`, `metric`, `value`, `standard_error`, `users`; the
            standard error is null for figures of all lists together.
        comparisons: a row per metric and pair of ranked lists, paired over users: `metric`, `model`, `score`,
            `other_model`, `other_score`, `difference`, `standard_error`, `p_value`, `users`, `adjusted_p_value`.
        failed: the error of each model that could not be fitted or evaluated, by name.
        strata: if asked for, a row per ranked list, stratum and metric of users: `model`, `score`, `metric`, `stratum`,
            `least` and `most`, the range of its values, `value`, `standard_error`, `users`, `targets`.
    """

    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    failed: dict[str, str]
    strata: pl.DataFrame | None = None

    def table(self) -> pl.DataFrame:
        """Return a row per ranked list and a column per metric, the best by the first metric first."""
        wide = self.metrics.pivot("metric", index=["model", "score"], values="value")
        return wide.sort(wide.columns[2], descending=True)


def evaluate(
    models: Mapping[str, Model] | Sequence[Model] | Model,
    interactions: Any,
    *,
    protocol: str = "strong_generalization",
    metrics: Sequence[str | OwnMetric] | str | OwnMetric | None = None,
    strata: str | None = None,
    folds: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    split_settings: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Fit models on the training part of a protocol and rank the held-out likes of its test users.

    Args:
        models: estimators, which are not changed; a mapping names them, so that one may come with several settings.
        interactions: `oneclass.Interactions`, or what it reads.
        protocol: `strong_generalization`, `leave_one_out`, `next_events` or `cold_items`.
        metrics: the metrics to return, in this order, by default those of a run's tables. Names with any k, such as
            `precision@7`, are in `docs/reference.md` with their formulas. A function gets the
            `UserRanks` of one user and returns a number, or NaN to leave the user out; its rows have its name.
        strata: `activity`, thirds of the test users by the length of their histories, `popularity`, thirds of the items
            by their training likes, or a column of `Interactions(users=...)`, thirds of its numbers or each of its
            texts. The thirds are `low`, `middle` and `high`.
        folds: of strong_generalization: each user is a test user of the models fitted on the other folds; 1 for one
            split. By default 5 if fewer than 100 validation users have a like to be found, as in a run.
        seed: of the split; each model draws by its own.
        threads: cores to use, all by default. The numbers do not depend on it.
        split_settings: further settings of the stage `split`, such as `held_out_share`.

    Raises:
        ValueError: a protocol, metric or setting is unknown, or the interactions are too few for the protocol.
        OneclassError: no model can be evaluated.
    """
    named = _name_models(models)
    _check_protocol(protocol)
    chosen, table = name_metrics(metrics or (), protocol), _read_interactions(interactions)
    if strata is not None:
        check_strata(strata, table, chosen)
    of_lists = [found for name in chosen if (found := find_list_metric(name))]
    check_attributes(of_lists, table.items)
    with _split_log(named, table, protocol, folds, seed, threads, split_settings) as (home, digests):
        in_order = list_splits(protocol, digests)
        failed: dict[str, str] = {}
        fits: dict[str, dict[str, str]] = {}
        for name in dict.fromkeys([*in_order, *find_validation_splits(protocol, digests)]):
            fits[name] = _fit_models(home, name, digests[name], named, failed)
        (digest, first), *further = splits = [(digests[name], fits[name]) for name in fits]
        found = evaluate_stage.evaluate(home, RUN, protocol, digest, first, further=further)
        values, pairs, ids = _load_tables(home, table)
        of_tables = set(values["metric"])
        of_lists = [metric for metric in of_lists if metric.name not in of_tables]
        others = {name: chosen[name] for name in chosen if name not in of_tables and not find_list_metric(name)}
        candidates = {name: compile_metric(metric, ids) for name, metric in others.items()}
        if missing := [name for name, metric in candidates.items() if metric is None]:
            known = ", ".join(sorted(of_tables))
            raise ValueError(f"metrics {', '.join(missing)}: not of this protocol, whose tables have {known}")
        added, by_stratum = {name: metric for name, metric in candidates.items() if metric is not None}, None
        if added or of_lists or strata is not None:
            heads = HeadsOfLists(of_lists, home, [digest for digest, _ in splits], table.items, ids.items)
            lists = collect_ranks(home, splits, values["model"].unique(maintain_order=True).to_list(), heads)
            values, pairs = evaluate_lists(lists, added, values, pairs)
            if strata is not None:
                by_stratum = evaluate_strata(lists, chosen, strata, table, ids, home=home, splits=splits)
    order = {name: position for position, name in enumerate(named)}
    values = values.sort(pl.col("model").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
    return Evaluation(*_select_metrics(values, pairs, list(chosen)), failed | found.failed, by_stratum)


@dataclass(frozen=True)
class Tuning:
    """The result of a search.

    Attributes:
        best: an unfitted model with the best settings.
        trials: a row per trial: `number`, `state`, `value`, `standard_error`, `seconds`, `note`, and a column for each
            setting that was searched.
    """

    best: Model
    trials: pl.DataFrame


def tune(
    model: Model,
    interactions: Any,
    *,
    protocol: str = "strong_generalization",
    trials: int = 20,
    space: SearchSpace | None = None,
    folds: int | None = None,
    threads: int | None = None,
    split_settings: Mapping[str, Any] | None = None,
) -> Tuning:
    """Search the settings of a model with Optuna on validation users, as `flows.tune` does; test users are not read.

    Args:
        model: the estimator at whose settings the search begins; its seed is that of the split and the draws.
        trials: the number of trials; the first has the model's own settings.
        space: the range of each searched setting; by default the model's own, without those that are searched by hand.
        protocol, folds, threads, split_settings: as in `evaluate`.

    Raises:
        ValueError: as `evaluate`, or there is nothing to search.
        OneclassError: every trial failed.
    """
    named = _name_models(model)
    [(name, start)] = named.items()
    by_default = {setting: of for setting, of in start.settings.search_space.items() if not of.manual_only}
    chosen = by_default if space is None else space
    if not chosen or trials < 1:
        raise ValueError(f"{name}: nothing to search; give space={{setting: range}} and at least one trial")
    if unknown := set(chosen) - set(type(start.settings).model_fields):
        raise ValueError(f"{name}: has no setting {', '.join(sorted(unknown))}")
    _check_protocol(protocol)
    table = _read_interactions(interactions)
    with _split_log(named, table, protocol, folds, start.seed, threads, split_settings) as (home, digests):
        first, *further = [digests[of] for of in find_validation_splits(protocol, digests)]
        search = Search(name, protocol, first, start.settings, chosen, start.seed, further_folds=tuple(further))
        study, train_part = Study(home, search), search.validation_data(home).train
        while asked := study.ask(trials, train_part):
            for trial in asked:
                record_pending_trial(home, search, trial.number, submit_trial(LOCAL, home, search, trial))
        outcomes, best = study.outcomes(), study.best()
    if best is None:
        raise OneclassError(f"{name}: every trial failed. The last one: {outcomes[-1].note}")
    common = ("number", "state", "value", "standard_error", "seconds", "note")
    rows = [
        {key: getattr(of, key) for key in common} | {key: of.settings.get(key) for key in chosen} for of in outcomes
    ]
    settings = type(start.settings).model_validate(best.settings)
    return Tuning(type(model)(settings, seed=model.seed, threads=model.threads), pl.DataFrame(rows, strict=False))


def _name_models(models: Mapping[str, Model] | Sequence[Model] | Model) -> dict[str, Model]:
    if isinstance(models, Model):
        models = [models]
    named = dict(models) if isinstance(models, Mapping) else {model.name: model for model in models}
    if not named or len(named) < len(models):
        raise ValueError("models: give at least one, and a mapping of names to models if one model comes twice")
    for name, model in named.items():
        if not isinstance(model, Model):
            raise TypeError(f"models: {name} is a {type(model).__name__}; give an estimator, such as oneclass.WMF()")
    return named


def _read_interactions(data: Any) -> Interactions:
    return data if isinstance(data, Interactions) else Interactions(data)


def _load_tables(home: Home, table: Interactions) -> tuple[pl.DataFrame, pl.DataFrame, IdsByIndex]:
    """Return the metrics and comparisons of the run, and the ids by index, texts or numbers as in the interactions."""
    ids = []
    with warehouse.open_warehouse(home, read_only=True) as connection:
        columns = "model, score, metric, value, standard_error, users"
        # one row per model, score and metric
        rows = (
            f"select {columns} from evaluation.metrics union all by name "
            f"select {columns} from evaluation.beyond_accuracy"
        )
        values = warehouse.query(connection, rows)
        # one row per metric and pair of ranked lists
        pairs = warehouse.query(connection, "select * exclude (run_id, protocol) from evaluation.comparisons")
        for side in ("user", "item"):
            # one row per user or item, in the order of their indices
            rows = warehouse.query(connection, f"select {side}_id from indexed.{side}s order by {side}_index")
            ids.append(rows[f"{side}_id"].cast(table.events.schema[f"{side}_id"]).to_list())
    return values, pairs, IdsByIndex(*ids)


def _check_protocol(protocol: str) -> None:
    if protocol not in (known := [name for name in PROTOCOLS if name != "given"]):
        raise ValueError(f"protocol {protocol!r}: take one of {', '.join(known)}")


@contextmanager
def _split_log(
    models: Mapping[str, Model],
    table: Interactions,
    protocol: str,
    folds: int | None,
    seed: int,
    threads: int | None,
    split_settings: Mapping[str, Any] | None,
) -> Iterator[tuple[Home, Mapping[str, str]]]:
    """Yield a home with the split interactions and the digests of its splits; the models are in the registry."""
    options = {
        "order": any(model.settings.reads_order for model in models.values()),
        "times": any(model.settings.reads_times for model in models.values()),
        **({} if folds is None else {"folds": max(2, folds), "min_validation_users": 0 if folds == 1 else 1 << 40}),
        **(split_settings or {}),
    }
    limits = Limits() if threads is None else Limits(threads=threads)
    with (
        tempfile.TemporaryDirectory(prefix="oneclass-evaluate-") as folder,
        _registered(models),
        _warnings_only(),
        _as_value_errors(),
    ):
        home = Home(Path(folder), "interactions", limits)
        ingest(home, _write_log(table, Path(folder)), [Path(folder) / "log.parquet"], RUN)
        sums = {"sum_values": True, "threshold": SMALLEST_WEIGHT} if "weight" in table.events.columns else {}
        likes = BinarizeSettings.model_validate(sums)
        binarize(home, likes, RUN)
        settings = SplitSettings(**options)
        digests = split(home, settings, RUN, protocols=[protocol], seed=seed, likes=likes).digests
        if not list_splits(protocol, digests):
            raise ValueError(f"{protocol}: no edge is left to train on; the interactions are too few for this protocol")
        yield home, digests


@contextmanager
def _warnings_only() -> Iterator[None]:
    """Leave out the log lines of the stages, which Prefect prints, for the duration of the block."""
    level = log_of_stages.level
    log_of_stages.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        log_of_stages.setLevel(level)


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Raise a stage's `InputError`, whose advice is of settings of a run, as the `ValueError` of wrong arguments."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _write_log(table: Interactions, folder: Path) -> Dataset:
    """Write the events and attributes as Parquet, and return the data set that reads them."""
    events, ids = table.events, [pl.col(name).cast(pl.String) for name in ("user_id", "item_id")]
    values = [name for name in ("weight", "time") if name in events.columns]
    events.select(*ids, *values).write_parquet(folder / "log.parquet")
    columns = {"user": "user_id", "item": "item_id", "value": "weight" if "weight" in values else (), "time": "time"}
    frames = {"user": table.users, "item": table.items}
    tables = {f"{side}s": _write_attributes(frame, side, folder) for side, frame in frames.items() if frame is not None}
    return Dataset.model_validate({"name": "interactions", "columns": columns, "files": ("log.parquet",), **tables})


def _write_attributes(frame: pl.DataFrame, side: str, folder: Path) -> dict[str, Any]:
    """Write a table of attributes as texts, and return what a data set's file would say of it."""
    file, kinds = folder / f"{side}.parquet", attribute_kinds(frame, f"{side}_id")
    texts = [
        pl.col(name).list.join(SEPARATOR) if kind == "categories" else pl.col(name).cast(pl.String)
        for name, kind in [(f"{side}_id", ""), *kinds.items()]
    ]
    frame.select(texts).write_parquet(file)
    columns = {kind: [name for name, of in kinds.items() if of == kind] for kind in kinds.values()}
    return {"file": str(file), "id": f"{side}_id", "separator": SEPARATOR, "max_missing_share": 1, **columns}


@contextmanager
def _registered(models: Mapping[str, Model]) -> Iterator[None]:
    """Enter models under their names in the registry, by which the stages load fits, for the duration of the block."""
    added = {}
    for name, model in models.items():
        if name not in MODELS or MODELS[name] is not type(model):
            # Its source is this file: that of a class in a notebook cannot be read, and no fit outlives the block.
            kind = type(type(model).__name__, (type(model),), {"name": name, "__module__": __name__})
            added[name] = MODELS.get(name)
            MODELS[name] = kind
    try:
        yield
    finally:
        for name, before in added.items():
            if before is None:
                del MODELS[name]
            else:
                MODELS[name] = before


def _fit_models(
    home: Home, split_name: str, digest: str, models: Mapping[str, Model], failed: dict[str, str]
) -> dict[str, str]:
    """Fit the models on a split and return the digests of the fits; the errors of the others go to `failed`."""
    fits = {}
    for name, model in models.items():
        if name in failed:
            continue
        try:
            fit = train(
                home,
                RUN,
                protocol=split_name,
                matrices_digest=digest,
                model=name,
                settings=model.settings,
                seed=model.seed,
            )
        except OneclassError as error:
            failed[name] = str(error)
            logger.warning("%s failed and is left out: %s", name, error)
        else:
            fits[name] = fit.digest
    if not fits:
        raise OneclassError(f"no model can be fitted: {'; '.join(failed.values())}")
    return fits


def _select_metrics(
    values: pl.DataFrame, pairs: pl.DataFrame, metrics: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    if not metrics:
        return values, pairs
    order = pl.col("metric").replace_strict({name: at for at, name in enumerate(metrics)}, return_dtype=pl.Int64)
    chosen = values.filter(pl.col("metric").is_in(list(metrics)))
    models = {name: at for at, name in enumerate(values["model"].unique(maintain_order=True))}
    by_model = pl.col("model").replace_strict(models, return_dtype=pl.Int64)
    return chosen.sort(by_model, "score", order), pairs.filter(pl.col("metric").is_in(list(metrics)))
