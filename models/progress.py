"""A bar in the terminal or notebook for one fit; a module of its own, since a nightly run draws another bar."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress, TextColumn

from oneclass.models.fit_options import Epoch, FitOptions


@contextmanager
def show_progress(options: FitOptions, label: str) -> Generator[FitOptions]:
    """Yield the options of a fit with a bar that moves after every epoch."""
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[figures]}", style="dim"))
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None, figures="")

        def on_epoch(epoch: Epoch) -> None:
            figures = ", ".join(f"{name} {value:.6g}" for name, value in epoch.values.items())
            bars.update(task, completed=epoch.number, total=epoch.of, figures=figures)
            options.on_epoch(epoch)

        yield replace(options, on_epoch=on_epoch)
        done = max(1, bars.tasks[task].completed)  # a fit that has converged makes no further epochs
        bars.update(task, completed=done, total=done)
