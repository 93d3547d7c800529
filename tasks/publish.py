"""Publish: recommendations in the logs' own ids, and the evaluation as Parquet, CSV and Markdown.

The files of a run lie in `publications/<run>/`, and `published` is a link to the newest complete one. The link is
changed in one step, so that a reader sees either the old tables or the new.

Beside them `published.duckdb`, the same tables and what an explanation needs, for readers: `tasks/stores/publications.py`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

import sql
from models import catalogue
from models.base import Model
from tasks import main_table
from tasks.orchestration.stage_task import stage_task
from tasks.protocols import VALIDATION_METRIC, main_metrics
from tasks.stores import fits, matrices, publications, warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

BLOCK_ENTRIES = 1 << 26  # scores held at a time: 256 MB of float32
TABLES = (
    "published/recommendations",
    "published/metrics",
    "published/comparisons",
    "published/fits",
    "published/users",
    "published/items",
    "published/histories",
)


class PublishSettings(BaseModel):
    """Which model makes the published recommendations, and how many."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(None, description="The model to publish; by default the best validation nDCG@100.")
    top_n: int = Field(20, ge=1, le=1000, description="Recommendations for each user.")


@dataclass(frozen=True)
class Choice:
    """The model and score that fill `published.recommendations`."""

    model: str
    score: str


@dataclass(frozen=True)
class Published:
    """What a run left for its readers."""

    folder: Path
    report: Path
    recommendations: int
    table: list[main_table.MainRow]


def choose(home: Home, run_id: str, settings: PublishSettings, candidates: list[str]) -> Choice:
    """The model to publish: the one asked for, else the best on validation, else popularity.

    The last case is that of a log with no validation user, or of a run without strong_generalization; the
    test part is never chosen on. Where popularity is no candidate either, the first one is taken.
    """
    with warehouse.connect(home, read_only=True) as connection:
        values = {"run_id": run_id, "model": settings.model, "metric": VALIDATION_METRIC}
        best = warehouse.select(connection, "publish/best_on_validation", **values)
    if len(best):
        return Choice(**best.row(0, named=True))
    model = settings.model or ("popularity" if "popularity" in candidates else candidates[0])
    if settings.model is None:
        logger.warning(
            "no user of a validation part to choose by; %s is published. Name another with publish.model.", model
        )
    return Choice(model, catalogue.MODELS[model].score_names[0])


def publish(
    home: Home,
    run_id: str,
    settings: PublishSettings,
    *,
    choice: Choice | None = None,
    model_digest: str | None = None,
    matrices_digest: str | None = None,
) -> Published:
    """Fill `published.recommendations` by the chosen model, fitted on every curated edge, and write the files.

    Args:
        choice: None leaves the recommendations as they are (a run of `given` alone).
    """
    fresh = publications.begin(home, run_id)
    parameters = {"recommendations_made": choice is not None, "top_n": settings.top_n}
    with warehouse.stage(home, run_id, "publish", parameters) as connection:
        if choice is not None:
            model = fits.load(home, choice.model, model_digest)
            split = matrices.read(home, matrices_digest)
            _fill_recommendations(connection, model, split, choice.score, settings.top_n)
        recommendations = connection.execute("select count(*) from published.recommendations").fetchone()[0]
        table = main_table.rows(connection, run_id)
        _write_files(connection, home, run_id, table, fresh)
        publications.copy_tables(home, fresh, _tables(connection, run_id))
        fits_of_run = connection.execute(
            "select distinct model, digest from operations.model_fits where run_id = ? order by all", [run_id]
        ).fetchall()
    publications.swing(home, fresh, {"run_id": run_id, "fits": fits_of_run})
    logger.info(
        "%s recommendations%s, tables in %s",
        f"{recommendations:,}",
        f" by {choice.model}" if choice else "",
        home.published,
    )
    return Published(home.published, home.report / "index.html", recommendations, table)


def _fill_recommendations(
    connection: duckdb.DuckDBPyConnection, model: Model, split: matrices.SplitMatrices, score: str, top_n: int
) -> None:
    connection.execute("delete from published.recommendations")
    connection.execute(sql.statement("publish/ranked"))
    for block in _ranked_blocks(model, split, score, top_n):
        warehouse.insert(connection, "ranked", block)
    connection.execute(sql.statement("publish/recommendations"))


def _ranked_blocks(model: Model, split: matrices.SplitMatrices, score: str, top_n: int) -> Iterator[pl.DataFrame]:
    """The best items of every user, for one block of users after another."""
    users, items = split.train.shape
    step = max(1, BLOCK_ENTRIES // items)
    for start in range(0, users, step):
        rows = np.arange(start, min(start + step, users), dtype=np.int32)
        histories = split.train[rows]
        ids, values = model.recommend(histories, top_n, users=rows, score=score)
        user, place = np.nonzero(ids >= 0)
        like = model.like(histories, users=rows, items=ids)
        mean, deviation = (None, None) if like is None else (part[user, place].astype(np.float64) for part in like)
        yield pl.DataFrame(
            {
                "user_index": rows[user],
                "item_index": split.items[ids[user, place]],
                "rank": (place + 1).astype(np.int32),
                "score": values[user, place].astype(np.float64),
                "like_mean": mean,
                "like_sd": deviation,
            },
            schema_overrides={"like_mean": pl.Float64, "like_sd": pl.Float64},
        )


def _write_files(
    connection: duckdb.DuckDBPyConnection, home: Home, run_id: str, table: list[main_table.MainRow], folder: Path
) -> None:
    connection.execute(sql.statement("publish/evaluation"), {"run_id": run_id})
    for name, form in (("evaluation.parquet", "format parquet"), ("evaluation.csv", "header")):
        connection.execute(f"copy evaluation_of_run to '{_quoted(folder / name)}' ({form})")
    connection.execute(
        f"copy published.recommendations to '{_quoted(folder / 'recommendations.parquet')}' (format parquet)"
    )
    (folder / "evaluation.md").write_text(main_table.markdown(table, f"Evaluation on {home.dataset}"), encoding="utf-8")


def _tables(connection: duckdb.DuckDBPyConnection, run_id: str) -> Iterator[tuple[str, duckdb.DuckDBPyRelation]]:
    """The tables of `published.duckdb`, each asked for when the one before is written."""
    of_run = {"run_id": run_id}
    values = {"published/comparisons": of_run, "published/fits": of_run | main_metrics()}
    for name in TABLES:
        connection.complete()
        yield name.partition("/")[2], connection.sql(sql.statement(name), params=values.get(name))


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("'", "''")


publish_task = stage_task(publish)
