"""The choice of the model to publish: of the lists that cannot be told from the best on validation, the simplest."""

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np

from oneclass.models import registry
from oneclass.models.evaluation.metrics import ALPHA, adjust_against_best
from oneclass.tasks.protocols import PROTOCOLS, PUBLISH_PROTOCOLS, VALIDATION_METRIC, describe_folds
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.companion import has_like
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

Row = dict[str, Any]  # of the statement publish/validation_lists

# Models that explain themselves come first, then those that serve fast, then those that fit fast; models that are not
# listed, last. Those of one line are equally simple.
SIMPLEST_FIRST = (
    ("popularity",),  # the same list for all
    ("repeat",),  # what the user took before, and then the same list for all
    # sums over the likes, named as reasons
    ("item_knn", "rp3beta", "sansa", "mrf_sparse", "slim", "mrf_dense", "ease", "graph_filter"),
    ("wmf", "bpr_uniform", "bpr_popularity", "hpf"),  # products of factors
    ("random_graph", "paired_symbols", "binary_matrix"),  # posteriors, whose fits take longest on one core
    ("cdae", "mult_dae", "mult_vae"),  # neural networks
    ("repeat_mixture",),  # one of the above and repeat
    ("blend",),  # fits and serves several of the above
)


@dataclass(frozen=True)
class ChosenModel:
    """The model and score that fill `published.recommendations`, and why, as a sentence."""

    model: str
    score: str
    reason: str = field(default="", compare=False)


def choose_model(
    home: Home,
    run_id: str,
    settings: PublishSettings,
    candidates: list[str],
    protocol: str | None,
    *,
    folds: int = 1,
) -> ChosenModel:
    """Choose the model to publish: the one in the settings, else by the validation users, else popularity.

    Of the candidates' lists that cannot be told from the best by `VALIDATION_METRIC` (`adjust_against_best`), the best
    of the simplest models by SIMPLEST_FIRST is chosen, or the best of all with `publish.prefer = best`. Popularity is
    published for a log without validation users, or the first candidate if popularity is none; the choice never uses
    the test part. The reason says what the other protocol's validation users would choose, if it is another list.

    Args:
        protocol: the one whose validation users choose (`choose_publish_protocol`); None if no split has any.
        folds: how many folds these users are in; the reason says that they are the test users too.
    """
    models = [settings.model] if settings.model else candidates
    with warehouse.open_warehouse(home, read_only=True) as connection:
        lists = _load_lists(connection, run_id, protocol, models)
        if len(lists) == 1 or (lists and settings.model):
            return ChosenModel(lists[0]["model"], lists[0]["score"])
        if lists:
            assert protocol is not None
            choice = _choose_list(lists, settings.prefer, protocol, folds)
            dissent = _describe_dissent(connection, run_id, settings.prefer, candidates, protocol, choice)
            return replace(choice, reason="; ".join(filter(None, [choice.reason, dissent])))
    model = settings.model or ("popularity" if "popularity" in candidates else candidates[0])
    if settings.model is None:
        logger.warning(
            "no user of a validation part to choose by; %s is published. Name another with publish.model.", model
        )
    return ChosenModel(model, registry.MODELS[model].score_names[0])


def choose_companion(
    home: Home, run_id: str, settings: PublishSettings, published: str, candidates: list[str], protocol: str | None
) -> str | None:
    """Choose the model that says how sure the published lists are, and why (`tasks.recommend.companion`).

    Args:
        published: the model that ranks.
        candidates, protocol: as in `choose_model`.

    Returns:
        None if the published model says it itself, or no model does.
    """
    if settings.companion not in ("auto", "none"):
        return None if settings.companion == published else settings.companion
    if settings.companion == "none" or has_like(published):
        return None
    if not (models := [model for model in candidates if has_like(model)]):
        logger.info(
            "no model of this run has a like probability, so like_mean and like_sd stay empty; add random_graph to "
            "--models to fill them"
        )
        return None
    with warehouse.open_warehouse(home, read_only=True) as connection:
        lists = _load_lists(connection, run_id, protocol, models)
    return lists[0]["model"] if lists else models[0]


def _load_lists(
    connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str | None, models: list[str]
) -> list[Row]:
    """Load the lists with a value on a protocol's validation users, the best first."""
    values = {"run_id": run_id, "protocol": protocol, "models": models, "metric": VALIDATION_METRIC}
    return list(warehouse.select(connection, "publish/validation_lists", **values).iter_rows(named=True))


def _describe_dissent(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    prefer: str,
    candidates: list[str],
    protocol: str,
    choice: ChosenModel,
) -> str:
    """Describe what the other protocol would publish, and what that would lose by this one; empty if they agree."""
    [other] = set(PUBLISH_PROTOCOLS) - {protocol}
    if not (lists := _load_lists(connection, run_id, other, candidates)):
        return ""
    theirs = _choose_list(lists, prefer, other, folds=1, warn=False)
    if theirs == choice:
        return ""
    pair = {"model": theirs.model, "score": theirs.score, "other_model": choice.model, "other_score": choice.score}
    values = {"run_id": run_id, "protocol": protocol, "metric": VALIDATION_METRIC, **pair}
    rows = warehouse.select(connection, "publish/paired_difference", **values).to_dicts()
    sentence = f"{other} would publish {theirs.model}/{theirs.score}"
    return f"{sentence}, here {_describe_difference(rows[0])}" if rows else sentence


def _choose_list(lists: list[Row], prefer: str, protocol: str, folds: int, *, warn: bool = True) -> ChosenModel:
    """Choose among lists, the best first, each with its paired comparison with the best."""
    best, *others = lists
    # Without a test (of a single user, say) a list cannot be told from the best.
    p_values = np.array([1.0 if row["p_value"] is None else row["p_value"] for row in others])
    level = [best, *(row for row, p in zip(others, adjust_against_best(p_values), strict=True) if p >= ALPHA)]
    chosen = best if prefer == "best" else min(level, key=lambda row: _simplicity_rank(row["model"]))
    verdict = ""
    if best["model"] != "popularity" and any(row["model"] == "popularity" for row in level):
        verdict = f"nothing is surely better than popularity on {best['users']:,} validation users; "
        if warn:
            logger.warning("%s%s is chosen", verdict, chosen["model"])
    described = _describe_choice(chosen, best, lists, level, protocol)
    if folds > 1:
        described += f"; they are its test users{describe_folds(folds)}, so its table favours the chosen list slightly"
    return ChosenModel(chosen["model"], chosen["score"], verdict + described)


def _describe_choice(chosen: Row, best: Row, lists: list[Row], level: list[Row], protocol: str) -> str:
    judged = f"by {PROTOCOLS[protocol].tuned_by} of {best['users']:,} validation users of {protocol}"
    if chosen is best:
        level_count = len(level) - 1
        rest = f"{level_count} of the others cannot be told from it" if level_count else "all others are surely worse"
        return f"the best of {len(lists)} lists {judged}, {rest}"
    return (
        f"the simplest of {len(level)} lists that cannot be told from the best, {best['model']}/{best['score']}, "
        f"{judged}: {_describe_difference(chosen)}"
    )


def _describe_difference(row: Row) -> str:
    error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
    return f"{row['difference']:+.4f}{error}"


def _simplicity_rank(model: str) -> int:
    return next((rank for rank, models in enumerate(SIMPLEST_FIRST) if model in models), len(SIMPLEST_FIRST))
