"""How many rejects a file of the landing folder may hold before it is set aside.

A run's logs together are held to the same share by the contract of `raw.rejects`; where each file keeps to it, so do all.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import duckdb

import sql
from tasks.ingest.landing import Refused
from tasks.ingest.sources import LogFile


class TooManyRejects(Exception):
    """Some files hold more rejects than the data set allows; the transaction that read them is taken back.

    Attributes:
        refused: those files.
    """

    def __init__(self, refused: Sequence[Refused]) -> None:
        super().__init__("\n".join(one.reason for one in refused))
        self.refused = tuple(refused)


def check(connection: duckdb.DuckDBPyConnection, files: Sequence[tuple[int, LogFile]], share: float) -> None:
    """Compare the rejects of each file, of an archive's members together, with the share that is allowed.

    Args:
        files: (file_id, log) of each log that this run read in.
        share: `max_reject_share` of the data set.

    Raises:
        TooManyRejects: some are above it.
    """
    ids = [file_id for file_id, log in files]
    found = {row[0]: row[1:] for row in connection.execute(sql.statement("ingest/reject_shares"), [ids]).fetchall()}
    together: dict[Path, list[tuple]] = defaultdict(list)
    for file_id, log in files:
        together[log.location].append((log.path, *found[file_id]))
    refused = []
    for location, logs in together.items():
        rejects, lines = sum(log[1] for log in logs), sum(log[2] for log in logs)
        if rejects > share * lines:
            path, _, _, line, reason = max(logs, key=lambda log: log[1])
            refused.append(Refused(location, _reason(path, rejects, lines, line, reason, share)))
    if refused:
        raise TooManyRejects(refused)


def _reason(path: str, rejects: int, lines: int, line: int, reason: str, share: float) -> str:
    return (
        f"{path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
        f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. Mend the "
        "lines; or, where they are as they should be, raise max_reject_share, or widen value_min and value_max where "
        "the values are out of range."
    )
