"""Select the latest training edges of `given` as validation edges, as `split.validation` says.

A search holds out validation edges from the training edges. If the test edges are later in time, these must be the
latest of each user. Otherwise `tasks.tuning` draws them at random.
"""

from dataclasses import replace

import duckdb
import numpy as np

from oneclass.models.evaluation.temporal_drift import measure_drift
from oneclass.tasks.errors import InputError
from oneclass.tasks.split.matrix import load_csr
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select

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
