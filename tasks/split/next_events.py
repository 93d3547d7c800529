"""The protocol `next_events`: train on what was there before a day, find what came on that day and after it.

It is how a night is really judged. An edge belongs to the day of its first event; a repeat after the cut is not counted,
and is nothing to be found either. Users and items that first appear after the cut are unknown to every model, so edges
to them are dropped; so are edges without a time.
"""

import logging
from datetime import date

import duckdb
import numpy as np

import sql
from tasks.errors import InputError
from tasks.split.matrix import keep, matrix
from tasks.split.settings import SplitSettings
from tasks.stores.matrices import Part, SplitMatrices
from tasks.stores.warehouse import select

logger = logging.getLogger(__name__)


def cut(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> date:
    """The first day whose edges are to be found.

    Raises:
        InputError: no edge has a time.
    """
    everything = {"edges": "indexed.interactions"}
    found = select(connection, "split/next_cut", everything, share=settings.next_share).item()
    if found is None:
        raise InputError(
            "protocol next_events: needs the times of events, and these logs have none; leave it out of --protocols."
        )
    return settings.next_from or found


def make(connection: duckdb.DuckDBPyConnection, next_from: date, threshold: float, since: date | None) -> SplitMatrices:
    """Fill `indexed.next_events`; the matrices, the users of the test part being training users.

    Args:
        next_from: `cut`.
        threshold, since: by which `binarize` took an event for a like; a count is of such events.
    """
    values = {"next_from": next_from, "threshold": threshold, "since": since}
    connection.execute(sql.statement("split/next_events"), values)
    keep(connection, "next_events", "next_events_roles")
    items = select(connection, "split/next_items")["item_index"].to_numpy()
    everyone, train = matrix(connection, "next_events_roles where role = 'train'", len(items))
    users, targets = matrix(connection, "next_events_roles where role = 'next'", len(items))
    rows = np.searchsorted(everyone, users).astype(np.int32)
    logger.info(
        "next_events, %s edges before %s, %s from then on of %s users",
        f"{train.nnz:,}",
        next_from,
        f"{targets.nnz:,}",
        f"{len(users):,}",
    )
    part = Part(histories=None, targets=targets, users=users, rows=rows)
    return SplitMatrices("next_events", train, everyone, items.astype(np.int32), {"test": part})
