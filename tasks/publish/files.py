"""The files of a publication: its tables as a database, Parquet, CSV and Markdown, and the published model."""

import contextlib
import shutil
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks import datasets, item_titles, leaderboard
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.protocols import main_metric_parameters
from oneclass.tasks.stores import fits, publications, published_model, warehouse
from oneclass.tasks.stores.home import Home

# Tables that depend on the run and its settings; the others depend only on the recommendations and the logs.
RUN_TABLES = ("published/metrics", "published/comparisons", "published/fits", "published/lists")
PUBLISHED_TABLES = (
    "published/recommendations",
    "published/placements",
    *RUN_TABLES,
    "published/users",
    "published/items",
    "published/histories",
)


# Files of lists with the titles of items, and the tables that they are made of.
NAMED_LISTS = {
    publications.RECOMMENDATIONS_FILE: "published.recommendations",
    publications.PLACEMENTS_FILE: "published.placements",
}


def write_publication_tables(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_ids: dict[str, str],
    table: list[leaderboard.LeaderboardRow],
    folder: Path,
    reusable: Path | None,
    titles: dict[str, str],
) -> None:
    """Write the database for readers, and the files of recommendations and of the evaluation.

    Args:
        run_ids: `run_id`, and `evaluated`, the run whose evaluation is published.
        table: the leaderboard of the evaluated run.
        reusable: a publication of the same recommendations, logs and titles, whose large tables are copied, if there is
            one.
        titles: of items by id, which the Parquet files of lists have too.
    """
    if reusable:
        for name in publications.REUSABLE_FILES:
            if (reusable / name).exists():
                shutil.copyfile(reusable / name, folder / name)
    metrics = f"create or replace temp table evaluation_of_run as {sql.statement('report/metrics')}"
    connection.execute(metrics, {"run_id": run_ids["evaluated"]})
    tables = [*(RUN_TABLES if reusable else PUBLISHED_TABLES)]
    if explores := not reusable and _has_rows(connection, "published.exploration"):
        tables.append("published/exploration")
    publications.copy_tables(home, folder, _iterate_tables(connection, run_ids, tables))
    copied = {"evaluation.parquet": "evaluation_of_run", "evaluation.csv": "evaluation_of_run"}
    copied |= {published_model.LISTS_FILE: "published.lists"}
    if not reusable:
        for name, rows in NAMED_LISTS.items():
            if rows == "published.recommendations" or _has_rows(connection, rows):
                query = sql.statement("published/named_lists", lists=rows)
                copied[name] = f"({query})"
        if explores:
            copied[publications.EXPLORATION_FILE] = "published.exploration"
    with _register_titles(connection, titles):
        for name, rows in copied.items():
            form = "header" if name.endswith(".csv") else "format parquet"
            connection.execute(f"copy {rows} to '{publications.quote_path(folder / name)}' ({form})")
    (folder / "evaluation.md").write_text(
        leaderboard.format_markdown(table, f"Evaluation on {home.dataset}"), encoding="utf-8"
    )


def write_publication_model(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    folder: Path,
    recommends: dict[str, str],
    companion: tuple[str, str] | None,
    matrices_digest: str,
    titles: dict[str, str],
    attributes: Attributes,
) -> None:
    """Write the published fit, with the ids and titles of its columns and the histories that it was fitted on."""
    with _register_titles(connection, titles):
        published_model.write_published_model(
            folder,
            recommends=recommends,
            fit=fits.fit_folder(home, recommends["model"], recommends["digest"]),
            matrices=home.matrices / matrices_digest,
            items=warehouse.select(connection, "published/model_items"),
            users=warehouse.select(connection, "published/model_users"),
            attributes=attributes,
        )
    if companion:
        published_model.write_companion(folder, companion[0], fits.fit_folder(home, *companion))


def read_titles(home: Home, file: str | None) -> dict[str, str]:
    """Return the titles of items by id; none without a file."""
    if not file:
        return {}
    return item_titles.read_titles(Path(file), datasets.load_dataset(home.dataset, home.root, with_logs=True))


@contextlib.contextmanager
def _register_titles(connection: duckdb.DuckDBPyConnection, titles: dict[str, str]) -> Generator[None]:
    """Make the titles the table `item_titles`."""
    pairs = {"item_id": list(titles), "title": list(titles.values())}
    connection.complete()
    connection.register("item_titles", pl.DataFrame(pairs, schema={"item_id": pl.String, "title": pl.String}))
    try:
        yield
    finally:
        connection.complete()
        connection.unregister("item_titles")


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return warehouse.fetch_row(connection, f"select count(*) > 0 from {table}")[0]


def _iterate_tables(
    connection: duckdb.DuckDBPyConnection, run_ids: dict[str, str], names: Iterable[str]
) -> Iterator[tuple[str, duckdb.DuckDBPyRelation]]:
    """Yield the tables of `published.duckdb` lazily: each query runs after the previous table is written."""
    comparisons = {"run_id": run_ids["evaluated"]}
    values = {"published/comparisons": comparisons, "published/fits": run_ids | main_metric_parameters()}
    for name in names:
        connection.complete()
        yield name.partition("/")[2], connection.sql(sql.statement(name), params=values.get(name))
