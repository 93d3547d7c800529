"""Blend: choose components among a run's models, and their weights, on a protocol's validation part only.

The components are the run's own fits on the split that has this part. A split without one has it drawn from its
training edges (`tasks.tuning.validation`), and the models are fitted again on the rest.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from pydantic import BaseModel
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.blend import BlendSettings, Candidates, Component, Weights, search_weights
from oneclass.models.blend.model import normalize_scores
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.metrics import Comparison
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import PROTOCOLS, FittedSplit, describe_folds
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.train import is_model_error
from oneclass.tasks.tuning.auto import ChosenSettings, record_settings
from oneclass.tasks.tuning.validation import MIN_USERS, evaluate_model, load_validation, sample_users

logger = logging.getLogger(__name__)

MAX_CANDIDATES = 8  # models in the weight search
CROSS_VALIDATION_FOLDS = 5  # of the validation users of one split
BLOCK_ENTRIES = 1 << 24  # scores held at a time

Candidate = list[Model]  # one model, fitted for each fold


class BlendChoice(BaseModel, frozen=True):
    """What a weight search chose for a protocol.

    Attributes:
        settings, searched: the weights, and the search's columns of `operations.model_settings`; None without a blend.
        reason, figures: the weights, or why there is no blend; and the end of the log's sentence.
        of_folds: settings chosen without the users of a fold, by its split's digest; empty for a log without folds.
    """

    settings: BlendSettings | None = None
    reason: str = ""
    figures: str = ""
    searched: dict[str, Any] | None = None
    of_folds: dict[str, BlendSettings] = {}

    def find_settings(self, split: str | None) -> BlendSettings | None:
        """Find the settings of a split, by its digest."""
        return self.of_folds.get(split or "", self.settings)


def choose_components(
    home: Home,
    run_id: str | None,
    *,
    protocol: str,
    judged: Sequence[FittedSplit],
    settings: Mapping[str, ModelSettings],
    seed: int,
    day: date,
) -> BlendChoice:
    """Choose the components and weights of a run's blend; without settings if none is worth it.

    Candidates are the MAX_CANDIDATES best models, each with its best score, by the protocol's tuning metric; the
    weights also consider S (`models.blend.weight_search`). Cross-validation over the validation users decides whether
    there is a blend (`is_worth_blending`). The users of a fold, who are its test users too, are judged by weights that
    the other folds chose. The choice of an earlier run from the same fits is taken.

    Args:
        run_id: the run whose settings the choice becomes; None for a blend of one protocol's table alone.
        judged: the split that has the protocol's validation part, or is to have one drawn, or the folds; with fits.
        seed: of the folds, of a drawn validation part and of the fits on the rest.
        day: the run takes events up to this day.
    """
    names = [name for name in judged[0][1] if name in settings and all(name in of_fold for _, of_fold in judged)]
    parameters = {
        "judged": [(digest, [(name, fitted[name]) for name in names]) for digest, fitted in judged],
        "settings": [settings[name].model_dump(mode="json") for name in names],
        "seed": seed,
    }

    def open_cache(connection: duckdb.DuckDBPyConnection) -> StageCache:
        sources = [Path(__file__), Path(__file__).with_name("tuning")]
        return StageCache(connection, f"blend {protocol}", sources, reads="", parameters=parameters, tables=())

    with warehouse.open_warehouse(home) as connection:
        stored = open_cache(connection).lookup()
    if stored:
        choice = BlendChoice.model_validate(stored)
    else:
        choice = _search_components(home, protocol, judged, {name: settings[name] for name in names}, seed)
        with warehouse.open_warehouse(home) as connection:
            open_cache(connection).store(choice.model_dump(mode="json"))
    logger.info("blend, %s: %s%s", protocol, choice.reason, choice.figures)
    if run_id is not None:
        searched = choice.searched and {**choice.searched, "searched_on": day}
        origin = "search" if choice.settings else "default"
        row = ChosenSettings("blend", origin, choice.reason, choice.settings or BlendSettings(), searched)
        record_settings(home, run_id, [row])
    return choice


def _search_components(
    home: Home, protocol: str, judged: Sequence[FittedSplit], settings: Mapping[str, ModelSettings], seed: int
) -> BlendChoice:
    """Search the weights of the models of `settings`, and decide whether their blend is worth it."""
    metric = PROTOCOLS[protocol].tuned_by
    splits = [matrices.load_split(home, digest, parts=("validation",)) for digest, _ in judged]
    if is_drawn := not any(split.parts for split in splits):
        splits = [load_validation(home, judged[0][0], seed)]
    train = splits[0].train
    parts = [sample_users(split.parts["validation"]) for split in splits if split.parts]
    folds = np.repeat(np.arange(len(parts)), [part.targets.shape[0] for part in parts])
    users = f"{len(folds):,} validation users{describe_folds(len(parts))}"
    if len(folds) < MIN_USERS:
        return BlendChoice(reason=f"{users} are too few to weigh models by")

    def find_fits(name: str) -> Candidate:
        if is_drawn:
            return [MODELS[name](settings[name], seed=seed, threads=home.limits.threads).fit(train)]
        return [fits.load_fit(home, name, of_fold[name]) for _, of_fold in judged]

    lists = _find_best_lists(settings, find_fits, parts, metric)
    if len(lists) < 2:
        return BlendChoice(reason="there are not two models to add")
    if not (is_folded := len(np.unique(folds)) > 1):
        folds = np.random.default_rng(seed).permutation(len(folds)) % CROSS_VALIDATION_FOLDS
    cutoff = int(metric.partition("@")[2])
    result = search_weights(Candidates.from_blocks(_score_blocks(lists, parts), cutoff), folds)
    names = [(models[0].name, score) for models, score in lists]
    blend, blended = _build_blend(names, result.weights, settings), metrics.mean_and_error(result.cross_validated)
    alone = float(result.alone[result.best].mean())
    fitted_folds = len(parts) if is_folded else 1
    gain = metrics.compare_paired(result.cross_validated, result.alone[result.best], fitted_folds)
    gain_in_s = metrics.compare_paired(result.cross_validated_mean_rank, result.mean_rank_alone, fitted_folds)
    best = "/".join(names[result.best])
    gains = [f"{of.difference:+.4f} ± {of.standard_error or 0.0:.4f}" for of in (gain, gain_in_s)]
    figures = f"{metric} {blended.value:.4f} by cross-validation, {best} alone {alone:.4f} ({', S '.join(gains)})"
    figures += f" over {users}"
    if len(blend.components) < 2 or not is_worth_blending(gain, gain_in_s):
        return BlendChoice(reason=f"no blend gains more than its error on its best component: {figures}")
    searched = {
        "protocol": protocol, "metric": metric, "trials": result.tried, "at_start": alone, "reached": blended.value,
        "standard_error": blended.standard_error, "users": train.shape[0], "items": train.shape[1], "edges": train.nnz,
        "key": judged[0][0],
    }  # fmt: skip
    of_others = zip(judged, result.of_others, strict=False) if is_folded else ()  # last folds may have no user
    return BlendChoice(
        settings=blend,
        reason=" + ".join(f"{one.weight:g} {one.model}/{one.score}" for one in blend.components),
        figures=f"{'' if _exceeds_error(gain) else ', for its gain in S'}; {figures}",
        searched=searched,
        of_folds={split: _build_blend(names, weights, settings) for (split, _), weights in of_others},
    )


def _find_best_lists(
    names: Collection[str], find_fits: Callable[[str], Candidate], parts: Sequence[Part], metric: str
) -> list[tuple[Candidate, str]]:
    """Return the best models, each with its best score, without those that have no fit."""
    lists: list[tuple[float, Candidate, str]] = []
    for name in names:
        try:
            models = find_fits(name)
        except Exception as error:
            if not is_model_error(error):
                raise
            logger.warning("blend: %s is left out: %s", name, error)
            continue
        values, score = evaluate_model(models, parts, metric)
        # Only the best are held in memory.
        lists = sorted([*lists, (float(values.mean()), models, score)], key=lambda entry: -entry[0])[:MAX_CANDIDATES]
    return [(models, score) for _, models, score in lists]


def _build_blend(
    names: Sequence[tuple[str, str]], weights: Weights, settings: Mapping[str, ModelSettings]
) -> BlendSettings:
    components = [
        Component(model=name, score=score, weight=weight, settings=settings[name].model_dump(mode="json"))
        for (name, score), weight in zip(names, weights, strict=True)
        if weight
    ]
    return BlendSettings(components=tuple(components))


def is_worth_blending(gain: Comparison, gain_in_s: Comparison) -> bool:
    """Whether a blend's nDCG exceeds its best component's by more than the error; or S does, if nDCG is higher too."""
    return _exceeds_error(gain) or (gain.difference > 0 and _exceeds_error(gain_in_s))


def _exceeds_error(gain: Comparison) -> bool:
    return gain.standard_error is not None and gain.difference > gain.standard_error


def _score_blocks(
    lists: list[tuple[Candidate, str]], parts: Sequence[Part]
) -> Iterator[tuple[np.ndarray, csr_matrix, csr_matrix]]:
    """Yield the normalised scores of every list, excluded items and targets of blocks of users, part after part."""
    for number, part in enumerate(parts):
        count, items = part.targets.shape
        step = max(1, BLOCK_ENTRIES // (items * len(lists)))
        for start in range(0, count, step):
            block = part.select(slice(start, start + step))
            scores = [
                normalize_scores(models[number].scores(block.histories, users=block.rows, score=score), block.histories)
                for models, score in lists
            ]
            yield np.stack(scores), block.excluded, block.targets


blend_task = stage_task(choose_components, stage="blend")
