"""Report the progress of long work: as a bar with the time left in a terminal, else as log lines; and as Prefect
artifact.

The bar is drawn on the console of Prefect's log handler, so that log lines appear above it. Lines that repeat the bar
are hidden on that console only; Prefect's record of the run has them all.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol, TypeVar

from prefect.logging.handlers import PrefectConsoleHandler
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from oneclass.tasks.orchestration.artifacts import ProgressArtifact

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0
BAR_WIDTH, COUNTS_WIDTH = 24, 32  # columns of the bar, and of the percentage, the times and the gaps
BAR_COLOUR = "bright_blue"  # colours by name only: Prefect's console has a theme without rich's own styles
_TERMINAL_LOCK = threading.Lock()  # one bar at a time; concurrent work logs lines

WorkItem = TypeVar("WorkItem")


class ProgressCallback(Protocol):
    """Reports the amount done, the total, and optionally a text."""

    def __call__(self, done: float, total: float, text: str = "") -> None: ...


@contextlib.contextmanager
def report_progress(label: str, *, artifact_key: str | None = None) -> Generator[ProgressCallback]:
    """Yield a callback that reports the progress of one long piece of work.

    Args:
        artifact_key: key of a progress artifact, published if the work takes more than a few seconds in a Prefect run.
    """
    artifact = ProgressArtifact(artifact_key, label) if artifact_key else None
    last_line = -SECONDS_BETWEEN_LINES
    first: tuple[float, float] | None = None

    with _progress_bar(label) as update_bar:

        def report(done: float, total: float, text: str = "") -> None:
            nonlocal last_line, first
            now = time.monotonic()
            # The first step compiles kernels, so its duration is left out of the estimate.
            first = first or (now, done)
            update_bar(done, total, text)
            if artifact:
                artifact.show(done / total)
            if now - last_line >= SECONDS_BETWEEN_LINES or done >= total:
                last_line = now
                left = _format_time_left(now - first[0], done - first[1], total - done)
                status = text or f"{100 * done / total:.0f} %"
                logger.info("%s: %s", label, ", ".join(filter(None, [status, left])), extra={"in_bar": True})

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


def _format_time_left(seconds: float, done: float, left: float) -> str:
    return f"about {format_duration(seconds / done * left)} left" if done > 0 and left > 0 else ""


@contextlib.contextmanager
def _progress_bar(label: str) -> Generator[ProgressCallback]:
    """Draw a bar on the terminal of the log, if it has one."""
    handler = _find_terminal_handler()
    if handler is None or not _TERMINAL_LOCK.acquire(blocking=False):
        yield lambda done, total, text="": None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(
            bar_width=BAR_WIDTH,
            style="grey37",
            complete_style=BAR_COLOUR,
            finished_style=BAR_COLOUR,
            pulse_style=BAR_COLOUR,
        ),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}", style="dim"),
    )
    handler.addFilter(_is_not_in_bar)
    try:
        with Bars(*columns, console=handler.console, transient=True, redirect_stdout=False) as bars:
            task = bars.add_task(label, total=None, text="")
            # A longer text would shrink the bar.
            width = max(0, handler.console.width - len(label) - BAR_WIDTH - COUNTS_WIDTH)
            yield lambda done, total, text="": bars.update(task, completed=done, total=total, text=text[:width])
    finally:
        handler.removeFilter(_is_not_in_bar)
        _TERMINAL_LOCK.release()


def _find_terminal_handler() -> PrefectConsoleHandler | None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler) and not handler.stream.closed and handler.stream.isatty():
            return None if handler.console.is_dumb_terminal else handler
    return None


def _is_not_in_bar(record: logging.LogRecord) -> bool:
    return not getattr(record, "in_bar", False)
