"""The report: one page that opens offline, rewritten after every run."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from oneclass.tasks import home_page
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home


def report(home: Home, run_id: str) -> None:
    """Write `<home>/<dataset>/report/` from the warehouse: `index.html` and `figures/<name>.svg`.

    The page contains its style, script and figures. Figures of earlier runs that this one lacks are deleted.
    """
    # Imported late, since matplotlib takes a second to load.
    from oneclass.tasks.report import plotting
    from oneclass.tasks.report.page import build_page
    from oneclass.tasks.report.run_tables import RunTables

    with warehouse.open_warehouse(home, read_only=True) as connection, plotting.plot_style():
        page = build_page(RunTables(connection, run_id), home)
    figures = home.report / "figures"
    durable.make_folder(figures)
    for name, element in page.panels.items():
        _write(figures / f"{name}.svg", plotting.render_svg_file(element))
    _write(home.report / "index.html", page.text)
    home_page.store_run_facts(home, shown=page.shown)
    for file in figures.glob("*.svg"):
        if file.stem not in page.panels:
            file.unlink()


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    durable.write_text(path.with_name(f".{path.name}"), path, text)


report_task = task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)(report)
