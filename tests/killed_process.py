"""Work in a process of its own that is killed before one of its changes of files."""

import os
import signal
import sys
from collections.abc import Callable

import duckdb

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.symlink")


def ends_before_change(number: int, work: Callable[[], object], *, from_commit: bool = False) -> bool:
    """Do the work in a fork that is killed before its change of files of this number; whether it ended before.

    A change is a file opened for writing, renamed or removed, a folder or link made, or a commit of DuckDB,
    which counts before and after. With `from_commit`, changes before the first commit do not count.
    """
    if (process := os.fork()) == 0:
        changes, waits = 0, from_commit
        commit = duckdb.DuckDBPyConnection.commit

        def count() -> None:
            nonlocal changes
            changes += not waits
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def hear(event: str, arguments: tuple) -> None:
            opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if opened or event in CHANGES:
                count()

        def count_and_commit(connection: duckdb.DuckDBPyConnection) -> None:
            nonlocal waits
            waits = False
            count()
            commit(connection)
            count()

        try:
            sys.addaudithook(hear)
            duckdb.DuckDBPyConnection.commit = count_and_commit
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0
