"""The files of a publication: the same tables as a database, as Parquet, CSV and Markdown, and the model that recommends."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks import datasets, item_titles, leaderboard
from oneclass.tasks.protocols import main_metric_parameters
from oneclass.tasks.stores import fits, publications, published_model, warehouse
from oneclass.tasks.stores.home import Home

RUN_TABLES = (
    "published/metrics",
    "published/comparisons",
    "published/fits",
)  # the others are of the lists and the logs alone
PUBLISHED_TABLES = (
    "published/recommendations",
    *RUN_TABLES,
    "published/users",
    "published/items",
    "published/histories",
)


def write_publication_tables(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_ids: dict[str, str],
    table: list[leaderboard.LeaderboardRow],
    folder: Path,
    before: Path | None,
) -> None:
    """The database for readers, and the files of recommendations and of the evaluation.

    Args:
        of_runs: `run_id`, and the one whose evaluation is published, `evaluated`.
        table: the main table of that one.
        before: a publication of the same lists and logs, whose large tables are taken, if there is one.
    """
    if before:
        for name in (publications.DATABASE_FILE, publications.RECOMMENDATIONS_FILE):
            shutil.copyfile(before / name, folder / name)
    connection.execute(sql.statement("publish/evaluation"), {"run_id": run_ids["evaluated"]})
    publications.copy_tables(
        home, folder, _iterate_tables(connection, run_ids, RUN_TABLES if before else PUBLISHED_TABLES)
    )
    copied = {"evaluation.parquet": "evaluation_of_run", "evaluation.csv": "evaluation_of_run"}
    copied |= {} if before else {publications.RECOMMENDATIONS_FILE: "published.recommendations"}
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
    matrices_digest: str,
    titles: str | None,
) -> None:
    """The fit that recommends, with the ids and titles of its columns and the histories that it was fitted on."""
    given: dict[str, str] = {}
    if titles:
        columns = datasets.load_dataset(home.dataset, home.root, with_logs=True).columns
        given = item_titles.read_titles(Path(titles), columns.item, named_by="publish.titles")
    pairs = {"item_id": list(given), "title": list(given.values())}
    connection.register("item_titles", pl.DataFrame(pairs, schema={"item_id": pl.String, "title": pl.String}))
    published_model.write_published_model(
        folder,
        recommends=recommends,
        fit=fits.fit_folder(home, recommends["model"], recommends["digest"]),
        matrices=home.matrices / matrices_digest,
        items=warehouse.select(connection, "published/model_items"),
        users=warehouse.select(connection, "published/model_users"),
    )
    connection.unregister("item_titles")


def _iterate_tables(
    connection: duckdb.DuckDBPyConnection, of_runs: dict[str, str], names: Iterable[str]
) -> Iterator[tuple[str, duckdb.DuckDBPyRelation]]:
    """The tables of `published.duckdb`, each asked for when the one before is written."""
    comparisons = {"run_id": of_runs["evaluated"]}
    values = {"published/comparisons": comparisons, "published/fits": of_runs | main_metric_parameters()}
    for name in names:
        connection.complete()
        yield name.partition("/")[2], connection.sql(sql.statement(name), params=values.get(name))
