"""The training edges that come last, by which settings are chosen: what `split.validation` makes of a split.

A search cuts a validation part out of the training edges. Where the test part comes after them in time, this has to be the
last of them: under `given` the ends of users' lines, under `next_events` the last days. Else it is drawn, by
`tasks.tuning`.
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

MIN_DRIFT_IN_SE = 4.0  # standard errors of the drift from which on lines are taken for ordered
MIN_SORTED_SHARE = 0.99  # share of neighbours that ascend, or descend, by id in lines that are sorted by it
MIN_USERS = 50  # who judge by the last days of next_events; with fewer, `auto` draws

# the split, with its `ends` where settings are chosen by them, and what is said of it
ValidationSplit = tuple[SplitMatrices, str]


def split_latest_events(
    connection: duckdb.DuckDBPyConnection, made: SplitMatrices, settings: SplitSettings
) -> ValidationSplit:
    """The last fifth of each user's training edges: floor(.8 n) stay, and at least one.

    Args:
        made: the split, the roles of its edges being in `given_roles`.

    Raises:
        InputError: `split.validation = line_end` of files that have neither places in lines nor times.
    """
    if settings.validation == "random":
        return made, "drawn at random, as split.validation says"
    found = select(connection, "split/line_order").row(0, named=True)
    if not (found["places"] or found["times"]):
        return made, _is_unordered(settings)
    train = "given_roles where role = 'train'"
    _, places = load_csr(connection, train, made.train.shape[1], made.users, value="place::integer")
    degrees = np.diff(made.train.indptr)
    by_ends = replace(made, ends=places.data > np.repeat(np.maximum(1, 4 * degrees // 5), degrees))
    if settings.validation == "line_end":
        return by_ends, "by the ends of lines, as split.validation says"
    ascending = found["ascending_text"], found["ascending_numbers"]
    if not found["times"] and (max(ascending) >= MIN_SORTED_SHARE or min(ascending) <= 1 - MIN_SORTED_SHARE):
        return made, "drawn at random, for lines are sorted by item id"
    z, users = measure_drift(made.train, places.data)
    figures = f"(z = {z:.1f}, {users:,} users)"
    if z > MIN_DRIFT_IN_SE:
        return by_ends, f"by the ends of lines, for items drift along them {figures}"
    return made, f"drawn at random, for items do not drift along lines {figures}"


def split_latest_days(
    connection: duckdb.DuckDBPyConnection, made: SplitMatrices, settings: SplitSettings
) -> ValidationSplit:
    """The split's own cut made once more: the days from which on `split.next_share` of the training edges came.

    Args:
        made: the split, the roles of its edges being in `next_events_roles`.
    """
    if settings.validation == "random" or made.train.nnz == 0:
        return made, "drawn at random"
    edges = "next_events_roles where role = 'train'"
    day = select(connection, "split/next_cut", {"edges": edges}, share=settings.next_share).item()
    late = f"(first_at >= date '{day}')::integer"
    ends = load_csr(connection, edges, made.train.shape[1], made.users, value=late)[1].data > 0
    before, after = (np.diff(part.indptr) > 0 for part in split_matrix(made.train, ends))
    users = np.count_nonzero(before & after)
    if settings.validation == "auto" and users < MIN_USERS:
        return made, f"drawn at random, for the last days, from {day} on, have only {users} users of before"
    return replace(made, ends=ends), f"the edges from {day} on, of {users:,} users"


def _is_unordered(settings: SplitSettings) -> str:
    lacking = "the training file has neither places in its lines nor times of all its events"
    if settings.validation == "line_end":
        raise InputError(
            f"split.validation = line_end: {lacking}. Places are those of adjacency lists; one that was read in before "
            "they were kept is read again into a new --home. Or set split.validation=random."
        )
    return f"drawn at random, for {lacking}"
