"""Report the progress of long work as log lines, with the time that is left."""

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0

WorkItem = TypeVar("WorkItem")


class ProgressCallback(Protocol):
    """Reports the amount done, the total, and optionally a text."""

    def __call__(self, done: float, total: float, text: str = "") -> None: ...


@contextlib.contextmanager
def report_progress(label: str) -> Generator[ProgressCallback]:
    """Yield a callback that reports the progress of one long piece of work."""
    last_line = -SECONDS_BETWEEN_LINES
    first: tuple[float, float] | None = None

    def report(done: float, total: float, text: str = "") -> None:
        nonlocal last_line, first
        now = time.monotonic()
        # The first step compiles kernels, so its duration is left out of the estimate.
        first = first or (now, done)
        if now - last_line >= SECONDS_BETWEEN_LINES or done >= total:
            last_line = now
            told = text or f"{100 * done / total:.0f} %"
            if first[1] < done < total:
                left = (now - first[0]) / (done - first[1]) * (total - done)
                told += f", about {format_duration(left)} left"
            logger.info("%s: %s", label, told)

    yield report


def iterate_with_progress(
    items: Iterable[WorkItem], label: str, weight: Callable[[WorkItem], float] = lambda item: 1
) -> Iterator[WorkItem]:
    """Yield the items one by one, and report the progress after each.

    Args:
        weight: an item's share of the work, in any unit.
    """
    items = list(items)
    total, done = sum(map(weight, items)), 0.0
    if len(items) < 2:
        yield from items
        return
    with report_progress(label) as report:
        for item in items:
            yield item
            done += weight(item)
            report(done, total)


def format_duration(seconds: float) -> str:
    """Format a duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
