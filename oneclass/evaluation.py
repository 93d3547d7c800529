"""Evaluate and tune models on interactions in memory: the numbers are those of a run."""

import logging
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import duckdb
import polars as pl

from oneclass.data_contracts import contracts
from oneclass.interactions import Interactions, encode_attributes
from oneclass.models.base import Model
from oneclass.models.evaluation import definitions
from oneclass.models.evaluation.metrics import find_metric
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import LogSize
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.settings import ModelSettings, SearchSpace
from oneclass.splits import as_splits, read_interactions
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import rewrite_interactions
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate import stage
from oneclass.tasks.evaluate.jobs import PendingEvaluation, evaluate_in_process
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, OwnMetric, add_own_metrics, load_ids
from oneclass.tasks.evaluate.tables import RankedList, compare_lists
from oneclass.tasks.protocols import PROTOCOLS, find_validation_splits, list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, rewrite_splits
from oneclass.tasks.stores import resources, warehouse
from oneclass.tasks.stores.home import Limits
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import find_validation_users, is_model_error
from oneclass.tasks.tuning.search import Search, describe_trials, find_best_trial, fit_trial, suggest_trial
from oneclass.tasks.tuning.validation import select_validation

SMALLEST_WEIGHT = 1e-9  # a pair with a smaller sum of weights is no like
logger = logging.getLogger(__name__)
log_of_stages = logging.getLogger("oneclass")
Metrics = Mapping[str, str | OwnMetric]  # by the names of their rows
FIGURES = {
    **dict.fromkeys(["split", "model", "score", "metric"], pl.String),
    **dict.fromkeys(["value", "standard_error"], pl.Float64),
    "users": pl.Int64,
}
COMPARISONS = {
    **dict.fromkeys(["split", "metric", "model", "score", "other_model", "other_score"], pl.String),
    **dict.fromkeys(["difference", "standard_error", "p_value"], pl.Float64),
    "users": pl.Int64,
    "adjusted_p_value": pl.Float64,
}


@dataclass(frozen=True)
class Evaluation:
    """The tables of an evaluation; of several splits, each table has a first column `split`.

    Attributes:
        metrics: a row per model, score and metric: `model`, `score`, `metric`, `value`, `standard_error`, `users`; the
            standard error is null for figures of all lists together.
        comparisons: a row per metric and pair of ranked lists, paired over users: `metric`, `model`, `score`,
            `other_model`, `other_score`, `difference`, `standard_error`, `p_value`, `users`, `adjusted_p_value`.
        failed: the error of each model that could not be fitted or evaluated, by name.
    """

    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    failed: dict[str, str]

    def table(self) -> pl.DataFrame:
        """Return a row per ranked list and a column per metric, the mean over splits, the best by the first first."""
        wide = self.metrics.pivot("metric", index=["model", "score"], values="value", aggregate_function="mean")
        return wide.sort(wide.columns[2], descending=True)


def evaluate(
    models: Mapping[str, Model] | Sequence[Model] | Model,
    interactions: Any,
    *,
    protocol: str | None = None,
    metrics: Sequence[str | OwnMetric] | str | OwnMetric | None = None,
    folds: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Fit models on the training part of a protocol and rank the held-out likes of its test users.

    Args:
        models: estimators, which are not changed; a mapping names them, so that one may come with several settings.
        interactions: `oneclass.Interactions`, or what it reads; or a `Split` of your own or a list of them.
        protocol: `strong_generalization`, the default, `leave_one_out`, `next_events` or `cold_items`; none of a
            `Split`, whose test pairs are ranked among all items outside the user's training pairs.
        metrics: the metrics to return, in this order, by default those of a run's tables. Names with any k, such as
            `precision@7`, are in the reference with their formulas. A function gets the `UserRanks` of one user and
            returns a number, or NaN to leave the user out; its rows have its name.
        folds: of strong_generalization: each user is a test user of the models fitted on the other folds; 1 for one
            split. By default 5 if fewer than 100 validation users have a like to be found, as in a run.
        seed: of the split; each model draws by its own.
        threads: cores to use, all by default. The numbers do not depend on it.
        progress: draw a bar of each fit, in a terminal or a notebook.

    Raises:
        ValueError: a protocol, metric or setting is unknown, or the interactions are too few for the protocol.
        OneclassError: no model can be evaluated.
    """
    named, draws = _name_models(models), _list_draws(interactions, protocol, seed)
    chosen, threads = _name_metrics(metrics or (), draws[0].protocol), threads or Limits().threads
    figures, comparisons, failed = [], [], dict[str, str]()
    for draw in draws:
        splits, ids = _split(draw.tables, named.values(), draw.protocol, draw.seed, folds, threads)
        names = [*list_splits(draw.protocol, splits), *find_validation_splits(draw.protocol, splits)]
        judged, errors = [splits[name] for name in dict.fromkeys(names)], dict[str, str]()
        fits = [_fit(split, named, errors, threads, progress=progress) for split in judged]
        with kernel_threads(threads):
            ranked = _rank(judged, fits, ids, chosen, errors)
        figures += [(draw.name, *row) for row in _list_figures(ranked, chosen)]
        comparisons += [(draw.name, *row) for row in compare_lists(ranked) if not chosen or row[0] in chosen]
        failed |= {model if len(draws) == 1 else f"{model}, {draw.name}": error for model, error in errors.items()}
    tables = [pl.DataFrame(figures, FIGURES, orient="row"), pl.DataFrame(comparisons, COMPARISONS, orient="row")]
    of_metrics, of_pairs = (table.drop("split") if len(draws) == 1 else table for table in tables)
    return Evaluation(of_metrics, of_pairs, failed)


def _split(
    tables: Sequence[Interactions],
    models: Iterable[Model],
    protocol: str,
    seed: int,
    folds: int | None,
    threads: int,
) -> tuple[dict[str, SplitMatrices], IdsByIndex]:
    """Split interactions as a run splits a log of the same events.

    Args:
        tables: the interactions; for the protocol `given`, those of its training and of its test part.
        models: whose settings decide whether the order and times of events are kept.

    Returns:
        The splits by name, and the ids by index, texts or numbers as in the interactions.

    Raises:
        ValueError: the interactions are too few for the protocol, or lack what it needs.
    """
    kept: dict[str, SplitMatrices] = {}

    def keep(split: SplitMatrices) -> Future[str]:
        kept[split.protocol] = split
        (done := Future()).set_result("")
        return done

    order, times = (any(getattr(model.settings, name) for model in models) for name in ("reads_order", "reads_times"))
    of_folds = {} if folds is None else {"min_validation_users": 0 if folds == 1 else 1 << 40}
    schema = tables[0].events.schema
    sums = {"sum_values": True, "threshold": SMALLEST_WEIGHT} if "weight" in schema else {}
    likes = BinarizeSettings.model_validate(sums)
    plan = SplitPlan(
        SplitSettings.model_validate({"order": "auto" if order else False, **of_folds}),
        [protocol],
        seed,
        LikeSelection(likes),
        given_files=([1], [2]) if protocol == "given" else None,
        times=times,
        folds=max(2, folds or 5),
    )
    config: dict[str, Any] = {"threads": threads, "temp_directory": tempfile.gettempdir()}
    with _quiet_stages(), duckdb.connect(config=config) as connection:
        for statements in ("set TimeZone = 'UTC'", *contracts.schema()):
            connection.execute(statements)
        for number, table in enumerate(tables, 1):
            events = table.events.rename({"weight": "value", "time": "occurred_at"}, strict=False)
            value = pl.col("value") if "value" in events.columns else pl.lit(1.0).alias("value")
            texts = pl.col("user_id", "item_id").cast(pl.String)
            events = events.with_columns(texts, value, file_id=number).with_row_index("line_number", 1)
            warehouse.insert(connection, "raw.events", events)
        rewrite_interactions(connection, likes, None, None)
        ids = [
            pl.Series(texts, dtype=pl.String).cast(schema[name])
            for name, texts in zip(("user_id", "item_id"), load_ids(connection), strict=True)
        ]
        rewrite_splits(connection, plan, keep, encode_attributes(tables[0].items, ids[1]))
    if not list_splits(protocol, kept):
        raise ValueError(f"{protocol}: no edge is left to train on; the interactions are too few for this protocol")
    return kept, IdsByIndex(*(of_side.to_list() for of_side in ids))


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


def _fit(
    split: SplitMatrices, models: Mapping[str, Model], failed: dict[str, str], threads: int, *, progress: bool
) -> dict[str, Model]:
    """Fit copies of the models on a split; the errors of those that cannot be fitted go to `failed`.

    Raises:
        OneclassError: no model can be fitted.
    """
    fitted: dict[str, Model] = {}
    cause: Exception | None = None
    for name in [name for name in models if name not in failed]:
        copy = type(models[name])(models[name].settings, seed=models[name].seed, threads=threads)

        def find_component(of: str, settings: ModelSettings, seed: int = copy.seed) -> Model | None:
            same = (one for one in fitted.values() if (one.name, one.settings, one.seed) == (of, settings, seed))
            return next(same, None)

        options = FitOptions(
            validation=find_validation_users(split), item_features=split.item_features, load_component=find_component
        )
        try:
            needed = copy.estimate_cost(copy.settings, LogSize.of(split.train)).bytes
            with resources.guard_model_memory(name, needed):
                fitted[name] = copy.fit(split.histories, options, progress=progress)
        except Exception as error:
            if not is_model_error(error):
                raise
            cause, failed[name] = error, f"{name} cannot be fitted: {error!r}"
            logger.warning("%s; it is left out", failed[name])
    if not fitted:
        raise OneclassError(f"no model can be fitted: {'; '.join(failed.values())}") from cause
    return fitted


def _rank(
    splits: Sequence[SplitMatrices],
    fits: Sequence[Mapping[str, Model]],
    ids: IdsByIndex,
    chosen: Metrics,
    failed: dict[str, str],
) -> list[RankedList]:
    """Rank the held-out likes of the test users by the models that were fitted on every split.

    Args:
        splits: those with a test part first.
        failed: gets the error of each model whose scores cannot be ranked.
    """
    by_rank = [name for name in chosen if name not in definitions.USER_METRICS and find_metric(name)]
    own = {name: metric for name, metric in chosen.items() if callable(metric)}

    def submit(name: str) -> list[PendingEvaluation]:
        pending = (evaluate_in_process(of[name], split, by_rank) for of, split in zip(fits, splits, strict=True))
        return [of._replace(results=add_own_metrics(of, own, ids)) for of in pending]

    with _quiet_stages():
        found = stage.evaluate_lists(splits, [name for name in fits[-1] if name not in failed], submit)
    failed |= found.evaluated.failed
    return found.ranked


def _list_figures(ranked: list[RankedList], chosen: Metrics) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of FIGURES without the split, with the chosen metrics in their order, or all."""
    known = {name for one in ranked for name in one.means | one.beyond_accuracy}
    if missing := [name for name, of in chosen.items() if not (name in known or callable(of) or find_metric(of))]:
        listed = f"{', '.join(missing)}: not of this protocol, whose tables have {', '.join(sorted(known))}"
        raise ValueError(f"metrics {listed}")
    for one in ranked:
        means = one.means | one.beyond_accuracy
        yield from ((one.model, one.score, name, *astuple(means[name])) for name in chosen or means if name in means)


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
    protocol: str | None = None,
    trials: int = 20,
    space: SearchSpace | None = None,
    folds: int | None = None,
    threads: int | None = None,
) -> Tuning:
    """Search the settings of a model with Optuna on validation users, as `flows.tune` does; test users are not read.

    Args:
        model: the estimator at whose settings the search begins; its seed is that of the split and the draws.
        trials: the number of trials; the first has the model's own settings.
        space: the range of each searched setting; by default the model's own, without those that are searched by hand.
        protocol, folds, threads: as in `evaluate`.

    Raises:
        ValueError: as `evaluate`, or there is nothing to search.
        OneclassError: every trial failed.
    """
    [(name, start)], [draw, *others] = _name_models(model).items(), _list_draws(interactions, protocol)
    by_default = {setting: of for setting, of in start.settings.search_space.items() if not of.manual_only}
    chosen = by_default if space is None else space
    if not chosen or trials < 1:
        raise ValueError(f"{name}: nothing to search; give space={{setting: range}} and at least one trial")
    if unknown := set(chosen) - set(type(start.settings).model_fields):
        raise ValueError(f"{name}: has no setting {', '.join(sorted(unknown))}")
    if others:
        raise ValueError(f"tune: {1 + len(others)} splits; give one, whose training pairs settings are searched on")
    threads, search = threads or Limits().threads, Search(name, draw.protocol, (), start.settings, chosen, start.seed)
    splits, _ = _split(draw.tables, [start], draw.protocol, start.seed, folds, threads)
    with _quiet_stages():
        validated = [splits[one] for one in find_validation_splits(draw.protocol, splits)]
        data = [select_validation(split, start.seed) for split in validated]
    ended = []
    for _ in range(trials):
        trial = suggest_trial(search, ended, data[0].train)
        with kernel_threads(threads):
            ended.append(fit_trial(search, trial, data, type(start), threads))
    described = describe_trials(ended)
    if (best := find_best_trial(ended)) is None:
        raise OneclassError(f"{name}: every trial failed. The last one: {described[-1]['note']}")
    common = ("number", "state", "value", "standard_error", "seconds", "note")
    rows = [{key: of[key] for key in common} | {key: of["settings"].get(key) for key in chosen} for of in described]
    found = type(start.settings).model_validate(best.user_attrs["settings"])
    return Tuning(type(model)(found, seed=model.seed, threads=model.threads), pl.DataFrame(rows, strict=False))


def _name_metrics(metrics: Sequence[str | OwnMetric] | str | OwnMetric, protocol: str) -> Metrics:
    """Return metrics by the names of their rows: that of a function is its own.

    Raises:
        ValueError: a name is unknown, and the error lists what there is; a function has a name that is taken.
    """
    of_tables = [*definitions.USER_METRICS, *definitions.SEEN_ITEM_METRICS, *definitions.NEW_ITEM_METRICS]
    of_tables += [*definitions.LIST_METRICS, f"validation_{PROTOCOLS[protocol].tuned_by}"]
    named: dict[str, str | OwnMetric] = {}
    for metric in [metrics] if isinstance(metrics, str) or callable(metrics) else metrics:
        name = getattr(metric, "__name__", str(metric))
        is_known = name in of_tables or find_metric(name) is not None
        if callable(metric) and (is_known or name in named):
            raise ValueError(f"metrics: {name} is the name of another metric; rename the function")
        if not (callable(metric) or is_known):
            at_k = f"{', '.join(definitions.METRICS_AT_K)} with any whole number k, map, mrr and ndcg without it"
            raise ValueError(f"metrics {name}: unknown. There are {at_k}, {', '.join(of_tables)}, and functions")
        named[name] = metric
    return named


def _name_models(models: Any) -> dict[str, Model]:
    if isinstance(models, Model):
        models = [models]
    named = dict(models) if isinstance(models, Mapping) else {model.name: model for model in models}
    if not named or len(named) < len(models):
        raise ValueError("models: give at least one, and a mapping of names to models if one model comes twice")
    for name, model in named.items():
        if not isinstance(model, Model):
            raise TypeError(f"models: {name} is a {type(model).__name__}; give an estimator, such as oneclass.WMF()")
    return named


class _Draw(NamedTuple):
    """One split to evaluate: its name in the tables, the interactions, or those of both parts, and how to split."""

    name: str
    tables: Sequence[Interactions]
    protocol: str
    seed: int


def _list_draws(interactions: Any, protocol: str | None, seed: int = 0) -> list[_Draw]:
    if splits := as_splits(interactions):
        if protocol is not None or seed != 0:
            raise ValueError("splits: their test pairs are given, so leave protocol and seed out")
        return [_Draw(one.name, (one.train, one.test), "given", 0) for one in splits]
    protocol = protocol or "strong_generalization"
    if protocol not in (known := [name for name in PROTOCOLS if name != "given"]):
        raise ValueError(f"protocol {protocol!r}: take one of {', '.join(known)}")
    return [_Draw("", [read_interactions(interactions)], protocol, seed)]
