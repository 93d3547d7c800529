"""The pipeline's stages over a warehouse in a temporary folder, of interactions that `oneclass.evaluate` is given.

Events are written as a log, binarized and split as a run does it, so that the numbers are those of a run on the same
events with the same settings and seed.
"""

import logging
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from oneclass.interactions import Interactions, attribute_kinds
from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.splits import Split
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.own_metrics import IdsByIndex, load_ids
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.train import load_or_fit

log_of_stages = logging.getLogger("oneclass")

RUN = "library"
SEPARATOR = "\x1f"  # of the names in a cell of a table of attributes; no name has it
SMALLEST_WEIGHT = 1e-9  # a pair with a smaller sum of weights is no like

logger = logging.getLogger(__name__)


@contextmanager
def split_log(
    models: Mapping[str, Model],
    data: Interactions | Split,
    protocol: str,
    folds: int | None,
    seed: int,
    threads: int | None,
    split_settings: Mapping[str, Any] | None,
) -> Generator[tuple[Home, Mapping[str, str]]]:
    """Yield a home with the split interactions and the digests of its splits; the models are in the registry.

    Args:
        protocol: `given` for a `Split`.
        folds, seed, threads, split_settings: as in `oneclass.evaluate`.

    Raises:
        ValueError: a setting is wrong, or the interactions are too few for the protocol.
    """
    options = {
        "order": any(model.settings.reads_order for model in models.values()),
        "times": any(model.settings.reads_times for model in models.values()),
        **({} if folds is None else {"folds": max(2, folds), "min_validation_users": 0 if folds == 1 else 1 << 40}),
        **(split_settings or {}),
    }
    limits = Limits() if threads is None else Limits(threads=threads)
    with (
        tempfile.TemporaryDirectory(prefix="oneclass-evaluate-") as folder,
        _register_models(models),
        _warnings_only(),
        _as_value_errors(),
    ):
        home = Home(Path(folder), "interactions", limits)
        tables = [data.train, data.test] if isinstance(data, Split) else [data]
        dataset, files = _write_logs(tables, Path(folder))
        of_logs = [[number] for number in ingest(home, dataset, files, RUN).file_ids]
        sums = {"sum_values": True, "threshold": SMALLEST_WEIGHT} if "weight" in tables[0].events.columns else {}
        likes = BinarizeSettings.model_validate(sums)
        binarize(home, likes, RUN)
        settings = SplitSettings.model_validate(options)
        given = (of_logs[0], of_logs[1]) if isinstance(data, Split) else None
        digests = split(home, settings, RUN, protocols=[protocol], seed=seed, given_files=given, likes=likes).digests
        if not list_splits(protocol, digests):
            raise ValueError(f"{protocol}: no edge is left to train on; the interactions are too few for this protocol")
        yield home, digests


@contextmanager
def _warnings_only() -> Generator[None]:
    """Leave out the log lines of the stages, which Prefect prints, for the duration of the block."""
    level = log_of_stages.level
    log_of_stages.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        log_of_stages.setLevel(level)


@contextmanager
def _as_value_errors() -> Generator[None]:
    """Raise a stage's `InputError`, whose advice is of settings of a run, as the `ValueError` of wrong arguments."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _write_logs(tables: Sequence[Interactions], folder: Path) -> tuple[Dataset, list[Path]]:
    """Write a log of each table's events, and the attributes of the first; return the data set that reads them."""
    files, values = [], [name for name in ("weight", "time") if name in tables[0].events.columns]
    for number, table in enumerate(tables):
        files.append(folder / f"log_{number}.parquet")
        ids = [pl.col(name).cast(pl.String) for name in ("user_id", "item_id")]
        table.events.select(*ids, *values).write_parquet(files[-1])
    columns = {"user": "user_id", "item": "item_id", "value": "weight" if "weight" in values else (), "time": "time"}
    frames = {"user": tables[0].users, "item": tables[0].items}
    attributes = {
        f"{side}s": _write_attributes(frame, side, folder) for side, frame in frames.items() if frame is not None
    }
    names = tuple(file.name for file in files)
    return Dataset.model_validate({"name": "interactions", "columns": columns, "files": names, **attributes}), files


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
def _register_models(models: Mapping[str, Model]) -> Generator[None]:
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


@contextmanager
def show_steps(label: str, *, is_shown: bool) -> Generator[Callable[[int, int, str], None]]:
    """Yield a function of the steps done, their number and the present one, which moves a bar."""
    if not is_shown:
        yield lambda done, of, step: None
        return
    from rich.console import Console  # an evaluation without a bar does not need it
    from rich.progress import Progress, TextColumn

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[step]}", style="dim"))
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None, step="")
        yield lambda done, of, step: bars.update(task, completed=done, total=of, step=step)


def fit_models(
    home: Home,
    digest: str,
    models: Mapping[str, Model],
    failed: dict[str, str],
    on_fit: Callable[[str], None],
) -> dict[str, str]:
    """Fit the models on a split and return the digests of the fits; the errors of the others go to `failed`.

    Args:
        on_fit: called with the name of each model before its fit.
    """
    fits = {}
    for name, model in models.items():
        on_fit(name)
        if name in failed:
            continue
        try:
            fit = load_or_fit(home, digest, name, model.settings, model.seed)
        except OneclassError as error:
            failed[name] = str(error)
            logger.warning("%s failed and is left out: %s", name, error)
        else:
            fits[name] = fit.digest
    if not fits:
        raise OneclassError(f"no model can be fitted: {'; '.join(failed.values())}")
    return fits


def load_tables(home: Home, table: Interactions) -> tuple[pl.DataFrame, pl.DataFrame, IdsByIndex]:
    """Return the metrics and comparisons of the run, and the ids by index, texts or numbers as in the interactions."""
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
        users, items = (pl.Series(texts, dtype=pl.String) for texts in load_ids(connection))
    types = table.events.schema
    ids = IdsByIndex(users.cast(types["user_id"]).to_list(), items.cast(types["item_id"]).to_list())
    return values, pairs, ids
