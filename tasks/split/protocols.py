"""What is specific to a protocol or scheme: next_events, seen items, liang2018, leave_one_out, cold_items and given.

Lists and rankings include the items that a user has already (`publish.seen`) where users come back to items: groceries,
music, places. Where a second event is an exception (ratings, films), such items would only fill the lists.

A search on `given` holds out validation edges from the training edges. If the test edges are later in time, these must
be the latest of each user. Otherwise `tasks.tuning` draws them at random.
"""

import json
import logging
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal, NamedTuple

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.evaluation.temporal_drift import measure_drift
from oneclass.tasks.binarize.aggregate import LikeSelection, select_like_events
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION
from oneclass.tasks.split.matrix import TRAINING_RELATION, insert_table, load_csr, store_roles
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from oneclass.tasks.stores.warehouse import query, select

logger = logging.getLogger(__name__)

LIANG2018_SEED = 98765
NEXT_SHARE = 0.1  # of the edges, which next_events finds
# Users that strong_generalization by the scheme hashed, leave_one_out and next_events evaluate at most, and pairs of a
# user and an item that they rank, so that an evaluation takes no longer than the fits.
MAX_EVALUATED_USERS, MAX_RANKED_PAIRS = 50_000, 5_000_000_000
COLD_SHARE = 0.1  # of the items, and of the edges of the others


def find_cut_day(connection: duckdb.DuckDBPyConnection, edges: str = "indexed.interactions") -> date | None:
    """Return the day from which on so large a share of the edges came as NEXT_SHARE; None if no edge has a time."""
    return select(connection, "split/next_cut", {"edges": edges}, share=NEXT_SHARE).item()


class Likes(NamedTuple):
    """What `binarize` finds in the events before a day, or in all: relations of likes and of observed negatives."""

    before: date | None = None
    edges: str = "indexed.interactions"
    negatives: str = "indexed.observed_negatives"


def find_likes(connection: duckdb.DuckDBPyConnection, selection: LikeSelection, day: date) -> Likes:
    """Return the likes that the events before a day make; where values add up, by the statements of `binarize`.

    The sums of the whole log would tell of later returns, and of how long ago events were at its end.
    """
    likes, edges, negatives = selection.likes, f"likes_before_{day:%Y%m%d}", f"negatives_before_{day:%Y%m%d}"
    if not likes.adds_values:
        known = f"where first_at < date '{day}'"
        unliked = f"{known} and (liked_at is null or liked_at >= date '{day}')"
        return Likes(day, f"(from indexed.interactions {known})", f"(from indexed.observed_negatives {unliked})")
    for side, new in ("user", ""), ("item", " union all from indexed.new_items"):
        numbered = f"from indexed.{side}s{new}"
        connection.execute(sql.statement("split/all_ids", side=side, numbered=numbered))
    select_like_events(connection, selection, day)
    connection.execute(sql.statement("binarize/weighted_pairs"), {"threshold": likes.threshold})
    connection.execute(sql.statement("split/summed_likes", table=edges))
    if not likes.explicit_negatives:
        return Likes(day, edges)
    sides = {f"{side}s": f"(from all_{side}s semi join {edges} using ({side}_index))" for side in ("user", "item")}
    observed = sql.statement("binarize/observed_negatives", events="weighted_events", likes=edges, **sides)
    # {negatives}: one row per pair as in indexed.observed_negatives, without those that are liked by then
    connection.execute(f"create or replace temp table {negatives} as from ({observed}) where liked_at is null")
    return Likes(day, edges, negatives)


def make_next_events(
    connection: duckdb.DuckDBPyConnection,
    selection: LikeSelection,
    past: Likes,
    later: Likes = Likes(),  # noqa: B008  (frozen)
    *,
    seen_items: bool,
    seed: int,
) -> SplitMatrices:
    """Create `next_events_roles` and return its matrices; test users are training users.

    Args:
        selection: by which `binarize` selected likes; only these are counted.
        past: the likes before the first day of the targets, which train.
        later: the likes that targets are chosen from; for validation edges not those of all events.
        seen_items: whether pairs that train and come again are targets too.
        seed: draws the users that are evaluated, if there are more than `limit_users`.
    """
    cut, before = {"next_from": past.before}, later.before
    if selection.likes.adds_values:
        edges = sql.statement("split/summed_edges", past=past.edges, later=later.edges)
    else:
        events, values = select_like_events(connection, selection)
        connection.execute(sql.statement("split/edges_astride", events=events), {**values, **cut, "before": before})
        edges = sql.statement("split/counted_edges", later=later.edges)
    statement = sql.statement("split/next_events", edges=edges, past=past.edges)
    connection.execute(statement, {**cut, "seen_items": seen_items})
    # one row per item that has an edge before the cut, in the order of its column
    known = "select distinct item_index, item_column from next_events_roles where role in ('train', 'again')"
    items = query(connection, f"{known} order by item_column")["item_index"].to_numpy()
    everyone, train = load_csr(connection, TRAINING_RELATION["next_events"], len(items))
    users, targets = load_csr(connection, "next_events_roles where role in ('next', 'again')", len(items))
    name, part_name = ("next_events", "test") if before is None else (NEXT_EVENTS_VALIDATION, "validation")
    logger.info(
        "%s, %s edges before %s, %s from then on of %s users",
        name,
        f"{train.nnz:,}",
        past.before,
        f"{targets.nnz:,}",
        f"{len(users):,}",
    )
    if len(users) > (most := limit_users(len(items))):
        drawn = np.sort(np.random.default_rng(seed).choice(len(users), most, replace=False))
        users, targets = users[drawn], targets[drawn]
        logger.info("%s: %s of these users, drawn by the seed, are evaluated", name, f"{most:,}")
    rows = np.searchsorted(everyone, users).astype(np.int32)
    part = Part(stored_histories=None, targets=targets, users=users, rows=rows, seen_items=seen_items)
    return SplitMatrices(name, train, everyone, items.astype(np.int32), {part_name: part})


def limit_users(items: int) -> int:
    """Return how many users are evaluated at most, on a catalogue of so many items."""
    return max(1, min(MAX_EVALUATED_USERS, MAX_RANKED_PAIRS // max(1, items)))


def limit_share(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> float:
    """Return `split.held_out_share`, halved until no more users are evaluated than `limit_users`.

    By halves, so that users keep their parts while the log grows a little.
    """
    (users, items), share = select(connection, "split/sizes").row(0), settings.held_out_share
    while share * users > (most := limit_users(items)):
        share /= 2
    if share < settings.held_out_share:
        logger.info(
            "strong_generalization: the share %g of the users validate and test instead of split.held_out_share = %g, "
            "%s users each at most",
            share,
            settings.held_out_share,
            f"{most:,}",
        )
    return share


def draw_users(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> None:
    """Create `user_parts`: the part of each active user, drawn by numpy's legacy generator.

    Raises:
        InputError: `split.held_out_users` is not set, or there are too few users for it.
    """
    # one row per user that strong_generalization keeps, in the order of their ids
    active = "select user_index from indexed.users semi join active_users using (user_index)"
    users = query(connection, f"{active} order by try_cast(user_id as bigint), user_id")["user_index"].to_numpy()
    held_out = settings.held_out_users
    if held_out is None:
        raise InputError(
            "split.scheme = liang2018 needs split.held_out_users, the users in each of validation and test."
        )
    if 2 * held_out >= len(users):
        raise InputError(
            f"split.held_out_users = {held_out}: validation and test together leave none of "
            f"{len(users)} users for training. Lower it, or use split.scheme = hashed."
        )
    order = users[np.random.RandomState(LIANG2018_SEED).permutation(len(users))]
    names = ["train", "validation", "test"]
    part = pl.Series(np.repeat(names, [len(users) - 2 * held_out, held_out, held_out]), dtype=pl.Enum(names))
    insert_table(connection, "user_parts", pl.DataFrame({"user_index": order, "part": part}))


def draw_targets(connection: duckdb.DuckDBPyConnection) -> None:
    """Create `targets`: a fifth of the candidate edges of each user, by the generator, seeded again for each part."""
    rows = select(connection, "split/candidates")
    user_index, in_validation_part = rows["user_index"].to_numpy(), rows["in_validation"].to_numpy()
    is_target = np.zeros(len(rows), dtype=bool)
    for in_validation in (True, False):
        generator = np.random.RandomState(LIANG2018_SEED)
        of_part = np.flatnonzero(in_validation_part == in_validation)
        starts = np.flatnonzero(np.diff(user_index[of_part], prepend=-1))
        for first, count in zip(starts.tolist(), np.diff(starts, append=len(of_part)).tolist(), strict=True):
            if count >= 5:  # of which the published code takes `choice(count, size, replace=False)`: the head of this
                is_target[of_part[first + generator.permutation(count)[: int(0.2 * count)]]] = True
    insert_table(connection, "targets", rows.filter(is_target).select("user_index", "item_index"))


def make_leave_one_out(
    connection: duckdb.DuckDBPyConnection, everything: SplitMatrices, seed: int, max_users: int
) -> SplitMatrices:
    """Fill `indexed.leave_one_out` and return its matrices; test users are training users.

    Args:
        everything: all edges, users and items by their indices.
        max_users: number of test users at most.
    """
    edges, users = everything.train, everything.users
    connection.execute(sql.statement("split/left_out"), {"seed": str(seed), "max_users": max_users})
    # one row per held-out edge, in the order of the users' indices
    left_out = query(connection, "select user_index, item_index from left_out order by user_index")
    rows = np.searchsorted(users, left_out["user_index"].to_numpy()).astype(np.int32)
    drawn = np.full(len(users), -1, dtype=np.int32)
    drawn[rows] = left_out["item_index"].to_numpy()
    connection.execute(sql.statement("split/leave_one_out"))
    store_roles(connection, "leave_one_out", "leave_one_out_roles")

    degrees = np.diff(edges.indptr)
    held_out = edges.indices == np.repeat(drawn, degrees)
    ends = np.arange(len(rows) + 1, dtype=np.int64)
    targets = csr_matrix((edges.data[held_out], drawn[rows], ends), shape=(len(rows), edges.shape[1]))
    starts = np.concatenate([[0], np.cumsum(degrees - (drawn >= 0))])
    train = csr_matrix((edges.data[~held_out], edges.indices[~held_out], starts), shape=edges.shape)
    logger.info("leave_one_out, %s users, %s edges held out", f"{len(users):,}", f"{targets.nnz:,}")
    part = Part(stored_histories=None, targets=targets, users=users[rows], rows=rows)
    return SplitMatrices("leave_one_out", train, users, everything.items, {"test": part})


def make_cold_items(connection: duckdb.DuckDBPyConnection, everything: SplitMatrices, seed: int) -> SplitMatrices:
    """Fill `indexed.cold_items` and return its matrices; test users are training users.

    Args:
        everything: all edges, users and items by their indices.
    """
    connection.execute(sql.statement("split/cold_items"), {"seed": str(seed), "share": COLD_SHARE})
    store_roles(connection, "cold_items", "cold_items_roles")
    width = everything.train.shape[1]
    everyone, train = load_csr(connection, TRAINING_RELATION["cold_items"], width)
    users, targets = load_csr(connection, "cold_items_roles where role in ('held_out', 'new')", width)
    # one row per item that is new, by index
    new_items = "select item_index from cold_items_roles where role = 'new' group by item_index order by item_index"
    columns = query(connection, new_items)["item_index"].to_numpy()
    rows = np.searchsorted(everyone, users).astype(np.int32)
    logger.info("cold_items, %s new items, %s edges held out", f"{len(columns):,}", f"{targets.nnz:,}")
    part = Part(stored_histories=None, targets=targets, users=users, rows=rows, new_items=columns.astype(np.int32))
    return SplitMatrices("cold_items", train, everyone, everything.items, {"test": part})


MIN_DRIFT_IN_SE = 4.0  # lines count as ordered if the drift exceeds this many standard errors
MIN_SORTED_SHARE = 0.99  # lines count as sorted by id if this share of neighbours ascends, or descends

# (split, log message); the split has a `latest_mask` if its latest edges are the validation edges
ValidationSplit = tuple[SplitMatrices, str]


def split_latest_events(
    connection: duckdb.DuckDBPyConnection, split: SplitMatrices, settings: SplitSettings
) -> ValidationSplit:
    """Select the last fifth of each user's training edges: floor(.8 n) stay, and at least one.

    Args:
        split: the split whose roles are in `given_roles`.

    Raises:
        InputError: `split.validation = latest` of files that have neither places in lines nor times.
    """
    if settings.validation == "random":
        return split, "drawn at random, as split.validation says"
    order = select(connection, "split/line_order").row(0, named=True)
    if not (order["places"] or order["times"]):
        return split, _explain_unordered(settings)
    train = "given_roles where role = 'train'"
    _, positions = load_csr(connection, train, split.train.shape[1], split.users, value="place::integer")
    degrees = np.diff(split.train.indptr)
    with_latest = replace(split, latest_mask=positions.data > np.repeat(np.maximum(1, 4 * degrees // 5), degrees))
    if settings.validation == "latest":
        return with_latest, "by the ends of lines, as split.validation says"
    ascending = order["ascending_text"], order["ascending_numbers"]
    if not order["times"] and (max(ascending) >= MIN_SORTED_SHARE or min(ascending) <= 1 - MIN_SORTED_SHARE):
        return split, "drawn at random, for lines are sorted by item id"
    z, users = measure_drift(split.train, positions.data)
    figures = f"(z = {z:.1f}, {users:,} users)"
    if z > MIN_DRIFT_IN_SE:
        return with_latest, f"by the ends of lines, for items drift along them {figures}"
    return split, f"drawn at random, for items do not drift along lines {figures}"


def _explain_unordered(settings: SplitSettings) -> str:
    lacking = "the training file has neither places in its lines nor times of all its events"
    if settings.validation == "latest":
        raise InputError(
            f"split.validation = latest: {lacking}. Places are those of adjacency lists; one that was read in before "
            "they were kept is read again into a new --home. Or set split.validation=random."
        )
    return f"drawn at random, for {lacking}"


MIN_REPEATED_SHARE = 0.05  # of the pairs after the cut, from which on `auto` includes seen items
MIN_REPEATING_USERS = 50  # with fewer users, the share says little

SeenSetting = Literal["auto", "include", "exclude"]


@dataclass(frozen=True)
class SeenItems:
    """Whether seen items are included, and why, as a sentence."""

    included: bool = False
    reason: str = ""

    @property
    def choice(self) -> str:
        """The setting that would choose this."""
        return "include" if self.included else "exclude"


def choose_seen_items(connection: duckdb.DuckDBPyConnection, setting: SeenSetting, cut_day: date | None) -> SeenItems:
    """Choose by the setting; `auto` includes seen items where users come back to them from a day on.

    Args:
        cut_day: the first day of the targets of next_events; None if the log has no times.
    """
    if setting != "auto":
        return SeenItems(setting == "include", "as publish.seen says")
    if cut_day is None:
        return SeenItems(
            False,
            "no event has a time, so nothing shows whether users come back to items; if they do, set "
            "publish.seen=include",
        )
    repeats = select(connection, "split/repeats", next_from=cut_day).row(0, named=True)
    share = repeats["repeated"] / max(repeats["pairs"], 1)
    figures = (
        f"{100 * share:.1f} % of {repeats['pairs']:,} pairs of known users and items from {cut_day} on are repeats, of "
        f"{repeats['users']:,} users"
    )
    included = share >= MIN_REPEATED_SHARE and repeats["users"] >= MIN_REPEATING_USERS
    least = f"{100 * MIN_REPEATED_SHARE:g} % and {MIN_REPEATING_USERS} users"
    return SeenItems(included, f"{figures}; lists include seen items from {least} on")


def record_choice(connection: duckdb.DuckDBPyConnection, run_id: str, seen_items: SeenItems) -> None:
    """Record the choice among the settings of a run in `operations.runs`, as `seen_items`."""
    connection.execute(
        "update operations.runs set settings = json_merge_patch(settings, ?) where run_id = ?",
        [json.dumps({"seen_items": seen_items.choice}), run_id],
    )
