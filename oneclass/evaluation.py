"""Evaluate and tune models on interactions in memory: the numbers are those of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import polars as pl

from oneclass.in_memory import fit_models, quiet_stages, split_in_memory
from oneclass.interactions import Interactions
from oneclass.metrics import Metrics, check_metrics, compute_figures, compute_strata, name_metrics
from oneclass.models.base import Model
from oneclass.models.evaluation.definitions import LIST_METRICS, USER_METRICS
from oneclass.models.evaluation.list_metrics import find_list_metric
from oneclass.models.evaluation.metrics_at_k import find_metric
from oneclass.models.settings import SearchSpace
from oneclass.splits import as_splits, read_interactions
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate import stage
from oneclass.tasks.evaluate.jobs import PendingEvaluation, evaluate_in_process
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, add_own_metrics
from oneclass.tasks.evaluate.tables import RankedList, compare_lists
from oneclass.tasks.metric_registry import OwnMetric
from oneclass.tasks.protocols import PROTOCOLS, find_validation_splits, list_splits
from oneclass.tasks.stores.home import Limits
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.tuning.search import Search, describe_trials, find_best_trial, suggest_trial
from oneclass.tasks.tuning.trial import fit_trial
from oneclass.tasks.tuning.validation import select_validation

DEFAULT_PROTOCOL = "strong_generalization"
LIST = {"model": pl.String, "score": pl.String, "metric": pl.String}
FIGURES = {"value": pl.Float64, "standard_error": pl.Float64, "users": pl.Int64}
METRIC_SCHEMA = LIST | FIGURES
STRATUM_SCHEMA = (
    LIST | {"stratum": pl.String, "least": pl.Float64, "most": pl.Float64} | FIGURES | {"targets": pl.Int64}
)
PAIR_SCHEMA = {
    **dict.fromkeys(["metric", "model", "score", "other_model", "other_score"], pl.String),
    **dict.fromkeys(["difference", "standard_error", "p_value"], pl.Float64),
    "users": pl.Int64,
    "adjusted_p_value": pl.Float64,
}


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
        progress: draw a bar of the fits, in a terminal or a notebook.

    Raises:
        ValueError: a protocol, metric or setting is unknown, or the interactions are too few for the protocol.
        OneclassError: no model can be evaluated.
    """
    named, repeated = _name_models(models), _list_draws(interactions, protocol, seed)
    chosen, threads, evaluations = name_metrics(metrics or (), repeated[0].protocol), threads or Limits().threads, {}
    for draw in repeated:
        check_metrics(chosen, strata, draw.tables[0].items)
    for draw in repeated:
        splits, ids = split_in_memory(draw.tables, named.values(), draw.protocol, draw.seed, folds, threads)
        names = [*list_splits(draw.protocol, splits), *find_validation_splits(draw.protocol, splits)]
        judged, failed = [splits[name] for name in dict.fromkeys(names)], {}
        fits = [fit_models(split, named, failed, threads, progress=progress) for split in judged]
        ranked = _rank(judged, fits, ids, chosen, strata, draw.tables[0].items, failed)
        evaluations[draw.name] = _make_tables(ranked, chosen, failed, has_strata=strata is not None)
    return _join_evaluations(evaluations)


def _rank(
    splits: Sequence[SplitMatrices],
    fits: Sequence[Mapping[str, Model]],
    ids: IdsByIndex,
    chosen: Metrics,
    strata: str | None,
    items: pl.DataFrame | None,
    failed: dict[str, str],
) -> list[RankedList]:
    """Rank the held-out likes of the test users by the models that were fitted on every split.

    Args:
        splits: those with a test part first.
        failed: gets the error of each model whose scores cannot be ranked.
    """
    names = [name for name in chosen if name not in {**USER_METRICS, **LIST_METRICS}]
    by_rank = [name for name in names if find_metric(name)]
    lists = [of for name in names if (of := find_list_metric(name))]
    own = {name: metric for name, metric in chosen.items() if callable(metric)}

    def submit(name: str) -> list[PendingEvaluation]:
        pending = [evaluate_in_process(of[name], split, by_rank) for of, split in zip(fits, splits, strict=True)]
        return [of._replace(results=add_own_metrics(of, own, ids)) for of in pending] if own else pending

    with quiet_stages():
        add_strata = partial(compute_strata, strata=strata, metrics=chosen, ids=ids)
        found = stage.evaluate_lists(splits, [name for name in fits[-1] if name not in failed], submit, add_strata)
    failed |= found.evaluated.failed
    tested = [split for split in splits if "test" in split.parts]
    for name in dict.fromkeys(one.model for one in found.ranked) if lists else ():
        figures = compute_figures(
            lists, [of[name] for of, _ in zip(fits, tested, strict=False)], tested, items, ids.items
        )
        for one in found.ranked:
            if one.model == name:
                one.of_users.update(figures[one.score].of_users)
                one.means.update(figures[one.score].means)
    return found.ranked


def _make_tables(ranked: list[RankedList], chosen: Metrics, failed: dict[str, str], *, has_strata: bool) -> Evaluation:
    """Make the tables of an evaluation, with the chosen metrics in their order, or all."""
    rows, known = [], {name for one in ranked for name in one.means | one.beyond_accuracy}
    computed = {name for name, of in chosen.items() if callable(of) or find_metric(of) or find_list_metric(of)}
    if missing := chosen.keys() - known - computed:
        listed = f"{', '.join(sorted(missing))}: not of this protocol, whose tables have {', '.join(sorted(known))}"
        raise ValueError(f"metrics {listed}")
    for one in ranked:
        means = one.means | one.beyond_accuracy
        rows += [(one.model, one.score, name, *astuple(means[name])) for name in chosen or means if name in means]
    pairs = [row for row in compare_lists(ranked) if not chosen or row[0] in chosen]
    strata = [(one.model, one.score, row.metric, *row[2:]) for one in ranked for row in one.strata]
    return Evaluation(
        pl.DataFrame(rows, METRIC_SCHEMA, orient="row"),
        pl.DataFrame(pairs, PAIR_SCHEMA, orient="row"),
        failed,
        pl.DataFrame(strata, STRATUM_SCHEMA, orient="row") if has_strata else None,
    )


def _join_evaluations(evaluations: Mapping[str, Evaluation]) -> Evaluation:
    """Join the tables of several splits, with the name of the split in each row; that of one split stays as it is."""
    if len(evaluations) == 1:
        return next(iter(evaluations.values()))

    def join(kind: str) -> Any:
        tables = {name: table for name, one in evaluations.items() if (table := getattr(one, kind)) is not None}
        named = [table.select(pl.lit(name).alias("split"), pl.all()) for name, table in tables.items()]
        return pl.concat(named) if named else None

    failed = {f"{model}, {name}": error for name, one in evaluations.items() for model, error in one.failed.items()}
    return Evaluation(join("metrics"), join("comparisons"), failed, join("strata"))


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
    splits, _ = split_in_memory(draw.tables, [start], draw.protocol, start.seed, folds, threads)
    with quiet_stages():
        validated = [splits[one] for one in find_validation_splits(draw.protocol, splits)]
        data = [select_validation(split, draw.protocol, start.seed, threads) for split in validated]
    ended = []
    for _ in range(trials):
        trial = suggest_trial(search, ended, data[0].train)
        ended.append(fit_trial(search, trial, data, type(start), threads))
    described = describe_trials(ended)
    if (best := find_best_trial(ended)) is None:
        raise OneclassError(f"{name}: every trial failed. The last one: {described[-1]['note']}")
    common = ("number", "state", "value", "standard_error", "seconds", "note")
    rows = [{key: of[key] for key in common} | {key: of["settings"].get(key) for key in chosen} for of in described]
    found = type(start.settings).model_validate(best.user_attrs["settings"])
    return Tuning(type(model)(found, seed=model.seed, threads=model.threads), pl.DataFrame(rows, strict=False))


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


@dataclass(frozen=True)
class _Draw:
    """One split to evaluate: its name in the tables, and what is split how.

    Attributes:
        tables: the interactions, or those of the training and of the test part.
    """

    name: str
    tables: Sequence[Interactions]
    protocol: str = "given"
    seed: int = 0


def _list_draws(interactions: Any, protocol: str | None, seed: int | Sequence[int] = 0) -> list[_Draw]:
    if splits := as_splits(interactions):
        if protocol is not None or seed != 0:
            raise ValueError("splits: their test pairs are given, so leave protocol and seed out")
        return [_Draw(one.name, (one.train, one.test)) for one in splits]
    protocol = protocol or DEFAULT_PROTOCOL
    if protocol not in (known := [name for name in PROTOCOLS if name != "given"]):
        raise ValueError(f"protocol {protocol!r}: take one of {', '.join(known)}")
    seeds = [seed] if isinstance(seed, int) else list(seed)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seed = {seed}: give a whole number, or several different ones")
    table = read_interactions(interactions)
    return [_Draw(f"seed {one}", [table], protocol, one) for one in seeds]
