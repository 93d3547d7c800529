"""The report: one page that opens with no network, made anew after every run."""

import os
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from oneclass.tasks import home_page
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home


def report(home: Home, run_id: str) -> None:
    """Write `<home>/<dataset>/report/`: `index.html`, in one step, and `figures/<name>.svg`, all from the warehouse.

    The page carries its style, script and figures in itself, and opens alone. Figures of a run before that this
    one does not have are deleted.
    """
    from oneclass.tasks.report import plotting  # matplotlib takes a second, which a run's first line need not wait for
    from oneclass.tasks.report.page import build_page
    from oneclass.tasks.report.run_tables import RunTables

    with warehouse.open_warehouse(home, read_only=True) as connection, plotting.plot_style():
        made = build_page(RunTables(connection, run_id), home)
    figures = home.report / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for name, element in made.panels.items():
        _write(figures / f"{name}.svg", plotting.render_svg_file(element))
    _write(home.report / "index.html", made.text)
    home_page.store_run_facts(home, shown=made.shown)
    for old in figures.glob("*.svg"):
        if old.stem not in made.panels:
            old.unlink()


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)


report_task = task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)(report)
