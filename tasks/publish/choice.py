"""The choice of the model to publish: the best list on validation, or the simplest of those that are about as good."""

import logging
from dataclasses import dataclass, field
from typing import Any

from oneclass.models import registry
from oneclass.tasks.protocols import PROTOCOLS, VALIDATION_METRIC, describe_folds
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.like_calibration import has_like
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

Row = dict[str, Any]  # of the statement publish/validation_lists

# Models that explain themselves, then those that serve fast, then those that fit fast; others, last. Those of one line
# are equally simple.
SIMPLEST_FIRST = (
    ("popularity",),  # the same list for all
    ("repeat",),  # what the user took before, and then the same list for all
    # sums over the likes, named as reasons
    ("transitions", "item_knn", "rp3beta", "sansa", "mrf_sparse", "slim", "mrf_dense", "ease", "slist", "graph_filter"),
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
    home: Home, run_id: str, settings: PublishSettings, candidates: list[str], protocol: str | None, *, folds: int = 1
) -> ChosenModel:
    """Choose the model to publish: the one in the settings, else by the validation users, else popularity.

    It is the candidates' list with the highest mean of VALIDATION_METRIC. With `publish.prefer = simplest` it is the
    simplest by SIMPLEST_FIRST of the lists within one standard error of it, by the paired difference; of equally simple
    ones the best.

    Args:
        protocol: the one whose validation users choose (`choose_publish_protocol`); None if no split has any.
        folds: how many folds these users are in.
    """
    models = [settings.model] if settings.model else candidates
    lists = _load_lists(home, run_id, protocol, models)
    if len(lists) == 1 or (lists and settings.model):
        return ChosenModel(lists[0]["model"], lists[0]["score"])
    if lists and protocol:
        close = [row for row in lists if settings.prefer == "simplest" and _is_within_one_error(row)]
        ranks = {model: rank for rank, models in enumerate(SIMPLEST_FIRST) for model in models}
        chosen = min([lists[0], *close], key=lambda row: ranks.get(row["model"], len(ranks)))
        return ChosenModel(chosen["model"], chosen["score"], _describe_choice(chosen, lists, protocol, folds))
    model = settings.model or ("popularity" if "popularity" in candidates else candidates[0])
    if settings.model is None:
        logger.warning(
            "no user of a validation part to choose by; %s is published. Name another with publish.model.", model
        )
    return ChosenModel(model, registry.MODELS[model].score_names[0])


def choose_companion(
    home: Home, run_id: str, settings: PublishSettings, published: str, candidates: list[str], protocol: str | None
) -> str | None:
    """Choose the model that says of published lists how sure and why; None if the published one does, or none can."""
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
    lists = _load_lists(home, run_id, protocol, models)
    return lists[0]["model"] if lists else models[0]


def _load_lists(home: Home, run_id: str, protocol: str | None, models: list[str]) -> list[Row]:
    """Load the lists with a value on a protocol's validation users, the best first."""
    values = {"run_id": run_id, "protocol": protocol, "models": models, "metric": VALIDATION_METRIC}
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return warehouse.select(connection, "publish/validation_lists", **values).to_dicts()


def _is_within_one_error(row: Row) -> bool:
    """Whether a list is within one standard error of the best; so is any if a single user has no error."""
    difference, error = row["difference"], row["standard_error"]
    return difference is not None and (error is None or -difference <= error)


def _describe_choice(chosen: Row, lists: list[Row], protocol: str, folds: int) -> str:
    best, which, compared = lists[0], f"the best of {len(lists)} lists", ""
    if chosen is not best:
        which = "the simplest list within one standard error of the best"
        compared = f", {_describe_difference(chosen)} against {best['model']}/{best['score']}"
    elif popular := [row for row in lists[1:] if row["model"] == "popularity" and row["difference"] is not None]:
        behind = popular[0] | {"difference": -popular[0]["difference"]}
        compared = f", {_describe_difference(behind)} against popularity"
    users = f"{best['users']:,} validation users{describe_folds(folds)} ({PROTOCOLS[protocol].title.lower()})"
    return f"{which} for {users}: {PROTOCOLS[protocol].tuned_by} {chosen['value']:.4f}{compared}"


def _describe_difference(row: Row) -> str:
    error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
    return f"{row['difference']:+.4f}{error}"
