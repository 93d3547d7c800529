"""The report: one page that opens offline, rewritten after every run."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from oneclass.tasks import home_page
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home

MAX_EARLIER = 30  # pages of runs that are kept


def report(home: Home, run_id: str) -> None:
    """Write `<home>/<dataset>/report/` from the warehouse: `index.html`, `runs/<time>.html`, and `search.html`.

    The page contains its style, script and figures. A copy in `runs/` stays when later runs replace `index.html`; the
    last `MAX_EARLIER` are kept.
    """
    from oneclass.tasks.report.page import build_page, build_search_page
    from oneclass.tasks.report.tables import RunTables

    with warehouse.open_warehouse(home, read_only=True) as connection:
        tables = RunTables(connection, run_id)
        page = build_page(tables, home, list_earlier_runs(home))
        search = build_search_page(tables, home)
    durable.make_folder(home.report / "runs")
    _write(home.report / "search.html", search)
    _write(home.report / "index.html", page.text)
    text = page.text.replace('href="runs/', 'href="').replace('href="search.html', 'href="../search.html')
    _write(home.report / "runs" / f"{page.name}.html", text)
    for name in list_earlier_runs(home)[MAX_EARLIER:]:
        (home.report / "runs" / f"{name}.html").unlink()
    home_page.store_run_facts(home, shown=page.shown)


def list_earlier_runs(home: Home) -> list[str]:
    """List the names of the pages of earlier runs that are kept, the newest first."""
    return sorted((file.stem for file in (home.report / "runs").glob("[0-9]*.html")), reverse=True)


def _write(path: Path, text: str) -> None:
    """Write a file atomically, unless it has this text."""
    if path.is_file() and path.read_bytes() == text.encode():
        return
    durable.write_text(path.with_name(f".{path.name}"), path, text)


report_task = task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)(report)
