"""The files of a publication: its tables as a database, Parquet, CSV and Markdown, and the published model."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks import datasets, leaderboard
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.ingest.attributes import read_titles
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED
from oneclass.tasks.rules.lists import ListSelections
from oneclass.tasks.stores import fits, publications, published_model, warehouse
from oneclass.tasks.stores.home import Home

PUBLISHED_TABLES = {
    "recommendations": "from published.recommendations order by user_id, rank",
    "placements": "from published.placements order by placement, user_id, rank",
    "metrics": "from metrics_of_run order by all",
    "comparisons": "from comparisons_of_run order by all",
    "lists": "from published.lists order by list, category nulls first, window_days, rank",
    "users": sql.statement("published/users"),
    "items": sql.statement("published/items"),
    "histories": sql.statement("published/histories"),
    "exploration": "from published.exploration order by user_id, rank",
}
"""The queries of the tables of `published.duckdb`, of which `exploration` is there only if lists explore."""


def write_publication(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    folder: Path,
    plan: PublicationPlan,
    table: list[leaderboard.LeaderboardRow],
    attributes: Attributes,
    selections: ListSelections,
) -> None:
    """Write all files of a publication but its manifest to its folder, from the tables of the schema `published`."""
    for name in ("metrics", "comparisons"):
        rows = f"select * exclude (run_id) from evaluation.{name} where run_id = ? order by all"
        connection.execute(f"create or replace temp table {name}_of_run as {rows}", [plan.evaluated or folder.name])
    explores = _has_rows(connection, "published.exploration")
    publications.write_tables(home, folder, _iterate_tables(connection, explores=explores))
    copied = {published_model.LISTS_FILE: "published.lists"}
    copied |= dict.fromkeys(("evaluation.parquet", "evaluation.csv"), "metrics_of_run")
    copied |= {"exploration.parquet": "published.exploration"} if explores else {}
    placed = ["placements"] if _has_rows(connection, "published.placements") else []
    for name in ("recommendations", *placed):
        rows = sql.statement("published/named_lists", lists=f"published.{name}")
        copied[f"{name}.parquet"] = f"({rows})"
    _store_titles(connection, home, plan.settings.titles)
    for name, rows in copied.items():
        form = "header" if name.endswith(".csv") else "format parquet"
        connection.execute(f"copy {rows} to '{publications.quote_path(folder / name)}' ({form})")
    if plan.lists is None:
        published_model.copy_published_model(home.published.resolve(), folder)
    else:
        spec = plan.lists
        companion = None if spec.companion == (spec.model, spec.digest) else spec.companion
        published_model.write_published_model(
            folder,
            fits={"fit": fits.fit_folder(home, spec.model, spec.digest)}
            | ({f"companion/{companion[0]}": fits.fit_folder(home, *companion)} if companion else {}),
            matrices=home.matrices / spec.matrices_digest,
            tables={
                "items": warehouse.select(connection, "published/model_items"),
                "users": warehouse.query(connection, "select user_id from indexed.users order by user_index"),
                **{f"{side}_attributes": table for side, table in attributes.items()},
            },
            descriptions={
                "recommends": {"model": spec.model, "score": spec.score, "digest": spec.digest},
                "like_calibrations": None if spec.calibrations is UNCALIBRATED else spec.calibrations.dump(),
                "rules": plan.rules.with_sizes(plan.settings.top_n).model_dump(mode="json") if selections else None,
            },
            excluded=selections[None].excluded if selections else None,
        )
    text = leaderboard.format_markdown(table, f"Evaluation on {home.dataset}")
    (folder / "evaluation.md").write_text(text, encoding="utf-8")


def _store_titles(connection: duckdb.DuckDBPyConnection, home: Home, file: str | None) -> None:
    """Fill the temporary table `item_titles`, which is empty without a file."""
    connection.execute("create or replace temp table item_titles (item_id varchar, title varchar)")
    if file:
        titles = read_titles(Path(file), datasets.load_dataset(home.dataset, home.root, with_logs=True))
        pairs = {"item_id": list(titles), "title": list(titles.values())}
        warehouse.insert(connection, "item_titles", pl.DataFrame(pairs))


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return warehouse.fetch_row(connection, f"select count(*) > 0 from {table}")[0]


def _iterate_tables(
    connection: duckdb.DuckDBPyConnection, *, explores: bool
) -> Iterator[tuple[str, duckdb.DuckDBPyRelation]]:
    """Yield the tables of `published.duckdb` lazily: each query runs after the previous table is written."""
    for name, query in PUBLISHED_TABLES.items():
        if explores or name != "exploration":
            connection.complete()
            yield name, connection.sql(query)
