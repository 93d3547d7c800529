"""Select the latest training edges as validation edges, as `split.validation` says.

A search holds out validation edges from the training edges. If the test edges are later in time, these must be the
latest: under `given` the last edges of each user, under `next_events` the last days. Otherwise `tasks.tuning` draws
them at random.
"""

from dataclasses import replace

import duckdb
import numpy as np

from oneclass.models.evaluation.holdout import split_matrix
from oneclass.models.evaluation.temporal_drift import measure_drift
from oneclass.tasks.errors import InputError
from oneclass.tasks.split.matrix import load_csr
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select

MIN_DRIFT_IN_SE = 4.0  # lines count as ordered if the drift exceeds this many standard errors
MIN_SORTED_SHARE = 0.99  # lines count as sorted by id if this share of neighbours ascends, or descends
MIN_USERS = 50  # with fewer users in the last days of next_events, `auto` draws at random

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


def split_latest_days(
    connection: duckdb.DuckDBPyConnection, split: SplitMatrices, settings: SplitSettings
) -> ValidationSplit:
    """Repeat the split's cut on its training edges: select the days with the latest `split.next_share` of them.

    Args:
        split: the split whose roles are in `next_events_roles`.
    """
    if settings.validation == "random" or split.train.nnz == 0:
        return split, "drawn at random"
    edges = "next_events_roles where role = 'train'"
    day = select(connection, "split/next_cut", {"edges": edges}, share=settings.next_share).item()
    is_late = f"(first_at >= date '{day}')::integer"
    is_latest = load_csr(connection, edges, split.train.shape[1], split.users, value=is_late)[1].data > 0
    before, after = (np.diff(part.indptr) > 0 for part in split_matrix(split.train, is_latest))
    users = np.count_nonzero(before & after)
    if settings.validation == "auto" and users < MIN_USERS:
        return split, f"drawn at random, for the last days, from {day} on, have only {users} users with earlier edges"
    return replace(split, latest_mask=is_latest), f"the edges from {day} on, of {users:,} users"


def _explain_unordered(settings: SplitSettings) -> str:
    lacking = "the training file has neither places in its lines nor times of all its events"
    if settings.validation == "latest":
        raise InputError(
            f"split.validation = latest: {lacking}. Places are those of adjacency lists; one that was read in before "
            "they were kept is read again into a new --home. Or set split.validation=random."
        )
    return f"drawn at random, for {lacking}"
