"""Evaluate and tune models on interactions by the pipeline's own stages: the numbers are those of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import polars as pl

from oneclass.interactions import Interactions
from oneclass.list_heads import HeadsOfLists, check_attributes
from oneclass.models.base import Model
from oneclass.models.evaluation.list_metrics import find_list_metric
from oneclass.models.settings import SearchSpace
from oneclass.splits import Split, as_splits, read_interactions
from oneclass.stages import RUN, fit_models, load_tables, show_steps, split_log
from oneclass.tasks.cluster import LOCAL
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate import stage as evaluate_stage
from oneclass.tasks.protocols import PROTOCOLS, find_validation_splits, list_splits
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning import Search, record_pending_trial, submit_trial
from oneclass.tasks.tuning.study import Study
from oneclass.user_metrics import (
    OwnMetric,
    check_strata,
    collect_ranks,
    compile_metric,
    evaluate_by_strata,
    evaluate_lists,
    name_metrics,
)

DEFAULT_PROTOCOL = "strong_generalization"


@dataclass(frozen=True)
class Evaluation:
    """The tables of an evaluation; of several splits or seeds, each table has a first column `split`.

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
        """Return a row per ranked list and a column per metric, the mean over splits, the best by the first first."""
        wide = self.metrics.pivot("metric", index=["model", "score"], values="value", aggregate_function="mean")
        return wide.sort(wide.columns[2], descending=True)

    def over_splits(self) -> pl.DataFrame:
        """Return the mean and standard deviation of each value over the splits, with the least, the most, and `splits`.

        Splits share training edges and users, so the deviation over the root of their number is no standard error.
        """
        value = pl.col("value")
        return self.metrics.group_by("model", "score", "metric", maintain_order=True).agg(
            value.mean(),
            value.std().alias("standard_deviation"),
            value.min().alias("least"),
            value.max().alias("most"),
            pl.len().cast(pl.Int64).alias("splits"),
        )


def evaluate(
    models: Mapping[str, Model] | Sequence[Model] | Model,
    interactions: Any,
    *,
    protocol: str | None = None,
    metrics: Sequence[str | OwnMetric] | str | OwnMetric | None = None,
    strata: str | None = None,
    folds: int | None = None,
    seed: int | Sequence[int] = 0,
    threads: int | None = None,
    split_settings: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Fit models on the training part of a protocol and rank the held-out likes of its test users.

    Args:
        models: estimators, which are not changed; a mapping names them, so that one may come with several settings.
        interactions: `oneclass.Interactions`, or what it reads; or a `Split` or list of them, of `split_last`,
            `split_share` and `split_times` or your own.
        protocol: `strong_generalization`, the default, `leave_one_out`, `next_events` or `cold_items`; none of a
            `Split`, whose test pairs are ranked among all items outside the user's training pairs.
        metrics: the metrics to return, in this order, by default those of a run's tables. Names with any k, such as
            `precision@7`, are in the reference with their formulas. A function gets the
            `UserRanks` of one user and returns a number, or NaN to leave the user out; its rows have its name.
        strata: `activity`, thirds of the test users by the length of their histories, or `popularity`, thirds of the
            items by their training likes. The thirds are `low`, `middle` and `high`.
        folds: of strong_generalization: each user is a test user of the models fitted on the other folds; 1 for one
            split. By default 5 if fewer than 100 validation users have a like to be found, as in a run.
        seed: of the split, or several, each of which makes a split; each model draws by its own.
        threads: cores to use, all by default. The numbers do not depend on it.
        split_settings: further settings of the stage `split`, such as `held_out_share`.
        progress: draw a bar of the fits, in a terminal or a notebook.

    Raises:
        ValueError: a protocol, metric or setting is unknown, or the interactions are too few for the protocol.
        OneclassError: no model can be evaluated.
    """
    named = _name_models(models)
    if splits := as_splits(interactions):
        _check_no_protocol(protocol, seed)
        repeated = [(one.name, one, "given", 0) for one in splits]
    else:
        protocol, table = _check_protocol(protocol), read_interactions(interactions)
        seeds = [seed] if isinstance(seed, int) else list(seed)
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seed = {seed}: give a whole number, or several different ones")
        repeated = [(f"seed {one}", table, protocol, one) for one in seeds]
    chosen = name_metrics(metrics or (), repeated[0][2])
    for _, data, _, _ in repeated:
        table = data.train if isinstance(data, Split) else data
        if strata is not None:
            check_strata(strata, chosen)
        check_attributes([found for name in chosen if (found := find_list_metric(name))], table.items)
    evaluations = {}
    with show_steps("evaluate", is_shown=progress) as show:
        for at, (name, data, of, draw) in enumerate(repeated):
            with split_log(named, data, of, folds, draw, threads, split_settings) as (home, digests):
                table = data.train if isinstance(data, Split) else data

                def on_step(done: int, steps: int, step: str, at: int = at) -> None:
                    show(at * steps + done, len(repeated) * steps, step)

                evaluations[name] = _evaluate_split(named, table, of, chosen, strata, home, digests, on_step)
    return _join_evaluations(evaluations)


def _evaluate_split(
    models: Mapping[str, Model],
    table: Interactions,
    protocol: str,
    chosen: Mapping[str, str | OwnMetric],
    strata: str | None,
    home: Home,
    digests: Mapping[str, str],
    on_step: Callable[[int, int, str], None],
) -> Evaluation:
    failed: dict[str, str] = {}
    fits: dict[str, dict[str, str]] = {}
    names = dict.fromkeys([*list_splits(protocol, digests), *find_validation_splits(protocol, digests)])
    steps, done = len(names) * len(models) + 1, count()
    for name in names:
        fits[name] = fit_models(
            home, digests[name], models, failed, lambda model: on_step(next(done), steps, f"fit {model}")
        )
    on_step(steps - 1, steps, "rank")
    (digest, first), *further = splits = [(digests[name], fits[name]) for name in fits]
    found = evaluate_stage.evaluate(home, RUN, protocol, digest, first, further=further)
    values, pairs, ids = load_tables(home, table)
    of_tables = set(values["metric"])
    of_lists = [of for name in chosen if name not in of_tables and (of := find_list_metric(name))]
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
            by_stratum = evaluate_by_strata(lists, chosen, strata, ids, home, splits)
    order = {name: position for position, name in enumerate(models)}
    values = values.sort(pl.col("model").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
    on_step(steps, steps, "")
    return Evaluation(*_select_metrics(values, pairs, list(chosen)), failed | found.failed, by_stratum)


def _join_evaluations(evaluations: Mapping[str, Evaluation]) -> Evaluation:
    """Join the tables of several splits, with the name of the split in each row; that of one split stays as it is."""
    if len(evaluations) == 1:
        return next(iter(evaluations.values()))

    def join(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(table.select(pl.lit(name).alias("split"), pl.all()) for name, table in tables.items())

    strata = {name: one.strata for name, one in evaluations.items() if one.strata is not None}
    return Evaluation(
        join({name: one.metrics for name, one in evaluations.items()}),
        join({name: one.comparisons for name, one in evaluations.items()}),
        {f"{model}, {name}": error for name, one in evaluations.items() for model, error in one.failed.items()},
        join(strata) if strata else None,
    )


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
    data: Interactions | Split
    if splits := as_splits(interactions):
        _check_no_protocol(protocol, 0)
        if len(splits) > 1:
            raise ValueError(f"tune: {len(splits)} splits; give one, whose training pairs settings are searched on")
        [data], protocol = splits, "given"
    else:
        protocol, data = _check_protocol(protocol), read_interactions(interactions)
    with split_log(named, data, protocol, folds, start.seed, threads, split_settings) as (home, digests):
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


def _check_protocol(protocol: str | None) -> str:
    if protocol is None:
        return DEFAULT_PROTOCOL
    if protocol not in (known := [name for name in PROTOCOLS if name != "given"]):
        raise ValueError(f"protocol {protocol!r}: take one of {', '.join(known)}")
    return protocol


def _check_no_protocol(protocol: str | None, seed: int | Sequence[int]) -> None:
    if protocol is not None or seed != 0:
        raise ValueError("splits: their test pairs are given, so leave protocol and seed out")


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
