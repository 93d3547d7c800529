"""The protocol strong_generalization: whole users are held out, in one split, or fold by fold if the log is small.

With the scheme hashed a user's part and fold follow from the hash of their id and the seed. If fewer validation users
than `split.min_validation_users` have a target, every user is a test user, and a validation user, of one fold: of
models that are fitted on the users of the other folds.
"""

import logging
from collections.abc import Iterator

import duckdb

from oneclass import sql
from oneclass.tasks.protocols import FOLD_INFIX, is_fold
from oneclass.tasks.split import protocols
from oneclass.tasks.split.matrix import load_csr, store_roles
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores.matrices import Part, SplitMatrices

logger = logging.getLogger(__name__)

PROTOCOL = "strong_generalization"


def make_splits(
    connection: duckdb.DuckDBPyConnection, settings: SplitSettings, seed: int, folds: int
) -> Iterator[SplitMatrices]:
    """Fill `indexed.strong_generalization` and yield its matrices, or those of one fold after another.

    The relations of a split exist until the next is requested.

    Args:
        folds: of logs below `split.min_validation_users`.

    Raises:
        InputError: liang2018 with too few users for `split.held_out_users`.
    """
    min_edges = {"min_user_edges": str(settings.min_user_edges), "min_item_edges": str(settings.min_item_edges)}
    connection.execute(sql.statement("split/active", **min_edges))
    if settings.scheme == "liang2018":
        protocols.draw_users(connection, settings)
        split = _make_split(connection, PROTOCOL, seed=None)
    else:
        _draw_parts(connection, seed, 0.0, settings.held_out_share, 2 * settings.held_out_share)
        split = _make_split(connection, PROTOCOL, seed)
        users = len(split.parts["validation"].users)
        if users < settings.min_validation_users:
            logger.info(
                "%s: %d validation users have a target, fewer than split.min_validation_users = %d: every user is a "
                "test and validation user of one of %d folds, so those who choose are those of the table",
                PROTOCOL,
                users,
                settings.min_validation_users,
                folds,
            )
            yield from _make_folds(connection, folds, seed)
            return
    store_roles(connection, PROTOCOL, "roles", "user_index, item_index, part, role")
    yield split


def _make_folds(connection: duckdb.DuckDBPyConnection, folds: int, seed: int) -> Iterator[SplitMatrices]:
    for number in range(1, folds + 1):
        end = number / folds
        _draw_parts(connection, seed, (number - 1) / folds, end, end)
        split = _make_split(connection, f"{PROTOCOL}{FOLD_INFIX}{number}", seed)
        store_roles(connection, PROTOCOL, "roles where part = 'test'", "user_index, item_index, part, role")
        yield split


def _draw_parts(
    connection: duckdb.DuckDBPyConnection, seed: int, test_from: float, validation_from: float, validation_to: float
) -> None:
    """Create `user_parts` by the users' hashes, which lie between 0 and 1."""
    bounds = {"test_from": test_from, "validation_from": validation_from, "validation_to": validation_to}
    connection.execute(sql.statement("split/hashed_users"), {"seed": str(seed), **bounds})


def _make_split(connection: duckdb.DuckDBPyConnection, name: str, seed: int | None) -> SplitMatrices:
    """Create `roles` from `user_parts`, and return the matrices.

    Args:
        seed: of the hashes that draw targets; None for those of liang2018.
    """
    for statement in ("split/active_edges", "split/train_items", "split/held_out_edges"):
        connection.execute(sql.statement(statement))
    if seed is None:
        protocols.draw_targets(connection)
    else:
        connection.execute(sql.statement("split/hashed_targets"), {"seed": str(seed)})
    connection.execute(sql.statement("split/held_out_roles"))
    connection.execute(sql.statement("split/roles"))

    items = connection.sql("select item_index from train_items order by item_column").pl()["item_index"].to_numpy()
    users, train = load_csr(connection, "roles where role = 'fit'", len(items))
    held_out = ("test",) if is_fold(name) else ("validation", "test")
    parts = {part: _load_part(connection, part, len(items)) for part in held_out}
    sizes = ", ".join(f"{len(of_part.users):,} {part}" for part, of_part in parts.items())
    logger.info("%s, %s training users, %s, %s items", name, f"{len(users):,}", sizes, f"{len(items):,}")
    return SplitMatrices(name, train, users, items, parts)


def _load_part(connection: duckdb.DuckDBPyConnection, part: str, items: int) -> Part:
    """Load the users of a part that have a target, with their histories and targets."""
    users, targets = load_csr(connection, f"roles where part = '{part}' and role = 'target'", items)
    users, histories = load_csr(connection, f"roles where part = '{part}' and role = 'fold_in'", items, users)
    return Part(stored_histories=histories, targets=targets, users=users)
