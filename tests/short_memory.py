"""A limit on the memory of the tests' own process, for as long as a block lasts."""

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def limit_memory(more: int) -> Iterator[int]:
    """Let this process have no more than so many bytes beside those that it has; the limit, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    has = 1024 * int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    resource.setrlimit(resource.RLIMIT_DATA, (has + more, before[1]))
    try:
        yield has + more
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
