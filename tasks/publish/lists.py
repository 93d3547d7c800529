"""Lists for everybody: popular, trending and new items, over windows that end at the log's last like.

docs/how-to/lists.md defines them. The test of trends is one for all items, whatever their categories.
"""

import duckdb
import numpy as np
import polars as pl
from scipy.special import betainc

from oneclass import sql
from oneclass.models.evaluation.metrics import ALPHA, adjust_benjamini_hochberg
from oneclass.tasks.attributes import Attributes
from oneclass.tasks.rules.lists import find_eligible_items
from oneclass.tasks.rules.settings import DeclaredRules
from oneclass.tasks.stores import warehouse

WINDOWS = (7, 30)  # days before the last like
LENGTH = 50  # items of a list
MIN_TREND_LIKES = 5
PRIOR_LIKES = 5.0  # of the shrunken ratio


def store_lists(connection: duckdb.DuckDBPyConnection, declared: DeclaredRules, attributes: Attributes) -> None:
    """Rewrite `published.lists` from the curated likes of the items that the rules for all lists allow."""
    (has_times,) = warehouse.fetch_row(connection, "select count(last_at) > 0 from indexed.interactions")
    windows = WINDOWS if has_times else [None]
    counted = pl.concat(rate_trends(warehouse.select(connection, "lists/counts", days=days)) for days in windows)
    if not declared.are_empty:
        counted = counted.filter(find_eligible_items(connection, declared, attributes)[counted["item_index"]])
    connection.register("counted", counted)
    connection.execute("delete from published.lists")
    connection.execute(sql.statement("lists/lists"), {"alpha": ALPHA, "length": LENGTH})
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
