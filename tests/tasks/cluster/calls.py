"""Calls for workers to make; a worker imports them by this module's name."""

import os
import time
from pathlib import Path

from oneclass.tasks.stores.home import Home


def identify_worker(home: Home) -> tuple[int, int]:
    """The process, and the threads that it may use."""
    return os.getpid(), home.limits.threads


def record_slowly(home: Home, began: Path, seconds: float) -> int:
    """Note the process in a file, and take a while."""
    with began.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return os.getpid()


def ends_its_process(home: Home) -> None:
    """As a kernel does that has no memory left."""
    os._exit(9)


def double_number(number: int) -> int:
    """A call of a fit's block."""
    return 2 * number
