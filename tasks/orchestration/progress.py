"""Progress of long work: in a terminal a bar with the time left, else one line for each step; and a Prefect artifact.

The bar is drawn on the console to which Prefect writes its log lines, so that the lines appear above the bar. Lines that
repeat what the bar shows are kept from that console only; Prefect's record of the run has them all.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from prefect.logging.handlers import PrefectConsoleHandler
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from oneclass.tasks.orchestration.artifacts import ProgressArtifact

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0
BAR_WIDTH, COUNTS_WIDTH = 24, 32  # columns of the bar, and of the percentage, the times and the gaps
BAR_COLOUR = "bright_blue"  # colours by name only: Prefect's console has a theme without rich's own styles
_TERMINAL_LOCK = threading.Lock()  # one bar at a time; other work reports its progress in lines

WorkItem = TypeVar("WorkItem")


class ProgressCallback(Protocol):
    """Says how much is done, of how much, and in words what else there is to say of it."""

    def __call__(self, done: float, of: float, words: str = "") -> None: ...


@contextlib.contextmanager
def report_progress(what: str, *, artifact_key: str | None = None) -> Iterator[ProgressCallback]:
    """Tell the progress of one long piece of work, named `what`, through the function that is yielded.

    Args:
        artifact_key: makes a progress artifact too, when the work takes more than a few seconds in a run of Prefect.
    """
    artifact = ProgressArtifact(artifact_key, what) if artifact_key else None
    last_line = -SECONDS_BETWEEN_LINES
    first: tuple[float, float] | None = None

    with _progress_bar(what) as move:

        def tell(done: float, of: float, words: str = "") -> None:
            nonlocal last_line, first
            now = time.monotonic()
            first = first or (now, done)  # kernels are compiled in the first step: it says little of the time left
            move(done, of, words)
            if artifact:
                artifact.show(done / of)
            if now - last_line >= SECONDS_BETWEEN_LINES or done >= of:
                last_line = now
                left = _format_time_left(now - first[0], done - first[1], of - done)
                said = words or f"{100 * done / of:.0f} %"
                logger.info("%s: %s", what, ", ".join(filter(None, [said, left])), extra={"in_bar": True})

        yield tell


def iterate_with_progress(
    items: Iterable[WorkItem], what: str, weight: Callable[[WorkItem], float] = lambda piece: 1
) -> Iterator[WorkItem]:
    """Yield the pieces of a long piece of work one by one, and report the progress after each.

    Args:
        weight: how much of the work a piece is.
    """
    items = list(items)
    of, done = sum(map(weight, items)), 0.0
    if len(items) < 2:
        yield from items
        return
    with report_progress(what) as tell:
        for piece in items:
            yield piece
            done += weight(piece)
            tell(done, of)


def format_duration(seconds: float) -> str:
    """A time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _format_time_left(seconds: float, done: float, left: float) -> str:
    return f"about {format_duration(seconds / done * left)} left" if done > 0 and left > 0 else ""


@contextlib.contextmanager
def _progress_bar(what: str) -> Iterator[ProgressCallback]:
    """A bar on the terminal to which log lines go; if they go elsewhere, none is drawn."""
    handler = _log_terminal()
    if handler is None or not _TERMINAL_LOCK.acquire(blocking=False):
        yield lambda done, of, words="": None
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
        TextColumn("{task.fields[words]}", style="dim"),
    )
    handler.addFilter(_is_logged_to_terminal)
    try:
        with Bars(*columns, console=handler.console, transient=True, redirect_stdout=False) as bars:
            task = bars.add_task(what, total=None, words="")
            room = max(0, handler.console.width - len(what) - BAR_WIDTH - COUNTS_WIDTH)  # or the bar would shrink
            yield lambda done, of, words="": bars.update(task, completed=done, total=of, words=words[:room])
    finally:
        handler.removeFilter(_is_logged_to_terminal)
        _TERMINAL_LOCK.release()


def _log_terminal() -> PrefectConsoleHandler | None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler) and not handler.stream.closed and handler.stream.isatty():
            return None if handler.console.is_dumb_terminal else handler
    return None


def _is_logged_to_terminal(record: logging.LogRecord) -> bool:
    return not getattr(record, "in_bar", False)
