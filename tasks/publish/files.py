"""The files of a publication: its tables as a database, Parquet, CSV and Markdown, and the published model.

Among the tables are lists for everybody, `published.lists`: popular, trending and new items, over windows that end at
the log's last like (docs/how-to/lists.md). The test of trends is one for all items, whatever their categories.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from scipy.special import betainc

from oneclass import sql
from oneclass.models.evaluation.metrics import ALPHA, adjust_benjamini_hochberg
from oneclass.tasks import datasets, leaderboard
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.ingest.attributes import read_titles
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED
from oneclass.tasks.rules.lists import ListSelections, find_eligible_items
from oneclass.tasks.rules.settings import DeclaredRules
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
WINDOWS = (7, 30)  # days before the last like
LIST_LENGTH = 50  # items of a list for everybody
MIN_TREND_LIKES = 5
PRIOR_LIKES = 5.0  # of the shrunken ratio


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
    copied = {published_model.LISTS_FILE: f"({PUBLISHED_TABLES['lists']})"}
    copied |= dict.fromkeys(("evaluation.parquet", "evaluation.csv"), "metrics_of_run")
    copied |= {"exploration.parquet": f"({PUBLISHED_TABLES['exploration']})"} if explores else {}
    copied["recommendations.parquet"] = _name_items("published.recommendations", "user_id, rank")
    if _has_rows(connection, "published.placements"):
        copied["placements.parquet"] = _name_items("published.placements", "placement, user_id, rank")
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


def _name_items(lists: str, order: str) -> str:
    rows = sql.statement("published/named_lists", lists=lists, order=order)
    return f"({rows})"


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


def store_lists(connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, attributes: Attributes) -> None:
    """Rewrite `published.lists` from the curated likes of the items that the rules for all lists allow."""
    (has_times,) = warehouse.fetch_row(connection, "select count(last_at) > 0 from indexed.interactions")
    windows = WINDOWS if has_times else [None]
    counted = pl.concat(rate_trends(warehouse.select(connection, "lists/counts", days=days)) for days in windows)
    if not declared.are_empty:
        counted = counted.filter(find_eligible_items(connection, declared, attributes)[counted["item_index"]])
    connection.register("counted", counted)
    connection.execute("delete from published.lists")
    connection.execute(sql.statement("lists/lists"), {"alpha": ALPHA, "length": LIST_LENGTH})
    connection.unregister("counted")


def rate_trends(counts: pl.DataFrame) -> pl.DataFrame:
    """Add `expected_likes` in the window by the item's own past, the shrunken ratio `trend`, and `p_value`.

    Each user counts once for an item, when they first like it. Let the item have had n likes after its first one, x of
    them in the window, and let a share q of the likes of all items since then be in the window. If the item's rate
    moves as that of all items does, x is Binomial(n, q) given n: the conditional test of two Poisson rates
    (Przyborowski and Wilenski 1940). The past lets expect m = (n - x) q / (1 - q) likes, and the ratio is
    (x + a) / (m + a), the mean of the relative rate under a Gamma(a, a) prior, a = PRIOR_LIKES. All three are null for
    an item that is not tested: n is below MIN_TREND_LIKES, or its first like is in the window.
    """
    likes, x, since, window = (
        counts[name].fill_null(0).to_numpy() for name in ("likes", "window_likes", "likes_since", "window_likes_since")
    )
    tested = (likes >= MIN_TREND_LIKES) & (since > window)
    share = np.divide(window, since, where=tested, out=np.full(len(since), np.nan))
    expected = (likes - x) * share / (1 - share)
    p_values = np.full(len(counts), np.nan)
    # The binomial's chance of x likes or more; scipy.stats, which has it by name, takes a quarter of a second to load.
    some = np.maximum(x[tested], 1)
    chances = np.where(x[tested] > 0, betainc(some, likes[tested] - some + 1, share[tested]), 1.0)
    p_values[tested] = adjust_benjamini_hochberg(chances)
    trends = {"expected_likes": expected, "trend": (x + PRIOR_LIKES) / (expected + PRIOR_LIKES), "p_value": p_values}
    return counts.with_columns(pl.Series(name, values).fill_nan(None) for name, values in trends.items())
