"""Work in a process of its own that is killed before one of its changes of files."""

import os
import signal
import sys
from collections.abc import Callable

CHANGES = ("os.rename", "os.remove", "os.mkdir")


def ends_before_change(number: int, work: Callable[[], object]) -> bool:
    """Do the work in a fork that is killed before its change of files of this number; whether it ended before.

    A change is a file opened for writing, renamed or removed, or a folder made.
    """
    if (process := os.fork()) == 0:
        changes = 0

        def count(event: str, arguments: tuple) -> None:
            nonlocal changes
            opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if opened or event in CHANGES:
                changes += 1
                if changes == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0
