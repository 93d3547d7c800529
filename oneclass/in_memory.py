"""Split and fit in memory by the code of the pipeline's stages, so that the numbers are those of a run."""

import logging
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.interactions import Interactions, encode_attributes
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import LogSize
from oneclass.models.settings import ModelSettings
from oneclass.tasks import memory_errors
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import rewrite_interactions
from oneclass.tasks.binarize.weights import LikeSelection
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, load_ids
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.split.features import Features
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, rewrite_splits
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import find_validation_users, is_model_error

SMALLEST_WEIGHT = 1e-9  # a pair with a smaller sum of weights is no like

logger = logging.getLogger(__name__)
log_of_stages = logging.getLogger("oneclass")


def split_in_memory(
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
        SplitSettings.model_validate({"order": order, **of_folds}),
        [protocol],
        seed,
        LikeSelection(likes),
        given_files=([1], [2]) if protocol == "given" else None,
        times=times,
        folds=max(2, folds or 5),
    )
    config: dict[str, Any] = {"threads": threads, "temp_directory": tempfile.gettempdir()}
    with quiet_stages(), duckdb.connect(config=config) as connection:
        for statements in ("set TimeZone = 'UTC'", *sql.schema()):
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
        rewrite_splits(connection, plan, keep, Features(encode_attributes(tables[0].items, ids[1])))
    if not list_splits(protocol, kept):
        raise ValueError(f"{protocol}: no edge is left to train on; the interactions are too few for this protocol")
    return kept, IdsByIndex(*(of_side.to_list() for of_side in ids))


@contextmanager
def quiet_stages() -> Generator[None]:
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
    split: SplitMatrices, models: Mapping[str, Model], failed: dict[str, str], threads: int, *, progress: bool
) -> dict[str, Model]:
    """Fit copies of the models on a split; the errors of those that cannot be fitted go to `failed`.

    Raises:
        OneclassError: no model can be fitted.
    """
    fitted: dict[str, Model] = {}
    cause: Exception | None = None
    for name in _show_progress([name for name in models if name not in failed], f"fit {split.protocol}", progress):
        copy = type(models[name])(models[name].settings, seed=models[name].seed, threads=threads)

        def find_component(of: str, settings: ModelSettings, seed: int = copy.seed) -> Model | None:
            same = (one for one in fitted.values() if (one.name, one.settings, one.seed) == (of, settings, seed))
            return next(same, None)

        options = FitOptions(
            validation=find_validation_users(split), item_features=split.item_features, load_component=find_component
        )
        try:
            needed = copy.estimate_cost(copy.settings, LogSize.of(split.train)).bytes
            with memory_errors.guard_model_memory(name, needed):
                fitted[name] = copy.fit(split.histories if copy.settings.reads_times else split.train, options)
        except Exception as error:
            if not is_model_error(error):
                raise
            cause, failed[name] = error, f"{name} cannot be fitted: {error!r}"
            logger.warning("%s; it is left out", failed[name])
    if not fitted:
        raise OneclassError(f"no model can be fitted: {'; '.join(failed.values())}") from cause
    return fitted


def _show_progress(names: list[str], label: str, is_shown: bool) -> Iterable[str]:
    if not is_shown:
        return names
    from rich.console import Console  # an evaluation without a bar does not need it
    from rich.progress import track

    return track(names, label, console=Console(stderr=True))
