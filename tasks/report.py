"""The report: one page that opens with no network, made anew after every run."""

import io
import os
from importlib.resources import files
from itertools import groupby
from typing import Any

import duckdb
import jinja2
import matplotlib
from markupsafe import Markup
from prefect import task
from prefect.cache_policies import NO_CACHE

import sql
from tasks import main_table, warehouse
from tasks.home import Home

matplotlib.use("svg")
from matplotlib.figure import Figure  # noqa: E402  (after the backend is chosen)


def report(home: Home, run_id: str) -> None:
    """Write `<home>/<dataset>/report/index.html` from the warehouse, in one step."""
    with warehouse.connect(home, read_only=True) as connection:
        page = _render(connection, home, run_id)
    home.report.mkdir(parents=True, exist_ok=True)
    fresh = home.report / ".index.html"
    fresh.write_text(page, encoding="utf-8")
    os.replace(fresh, home.report / "index.html")


def _render(connection: duckdb.DuckDBPyConnection, home: Home, run_id: str) -> str:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(files("tasks").joinpath("report_page.html").read_text(encoding="utf-8"))
    started_at, code_version = connection.execute(
        "select started_at, code_version from operations.runs where run_id = ?", [run_id]
    ).fetchone()
    edges, users, items = connection.execute(
        "select count(*), coalesce(max(user_index) + 1, 0), coalesce(max(item_index) + 1, 0) from curated.interactions"
    ).fetchone()
    table = main_table.rows(connection, run_id)
    return template.render(
        dataset=home.dataset,
        run_id=run_id,
        started_at=started_at.replace(microsecond=0),
        code_version=code_version,
        edges=edges,
        users=users,
        items=items,
        tables={protocol: list(rows) for protocol, rows in groupby(table, lambda row: row.protocol)},
        degrees=_degrees(connection),
        grid=_grid,
        **{name: _rows(connection, name, run_id) for name in ("log_files", "contracts", "laws", "fits")},
    )


def _rows(connection: duckdb.DuckDBPyConnection, name: str, run_id: str) -> list[dict[str, Any]]:
    text = sql.statement(f"report/{name}")
    cursor = connection.execute(text, {"run_id": run_id} if "$run_id" in text else {})
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _grid(rows: list[dict[str, Any]]) -> Markup:
    """A plain HTML table."""
    if not rows:
        return Markup("<p>Nothing.</p>")
    head = Markup("").join(Markup("<th>{}").format(name) for name in rows[0])
    body = Markup("").join(
        Markup("<tr>") + Markup("").join(Markup("<td>{}").format(_text(value)) for value in row.values())
        for row in rows
    )
    return Markup('<div class="wide"><table><tr>{}{}</table></div>').format(head, body)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _degrees(connection: duckdb.DuckDBPyConnection) -> str:
    """Figure 1 of the random-graph paper as SVG: vertices of each degree, on log-log axes."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, side in zip(figure.subplots(1, 2), ("user", "item"), strict=True):
        counted = connection.execute(
            "select degree, vertices from diagnostics.degrees where side = ? order by degree", [side]
        ).fetchnumpy()
        axes.loglog(
            counted["degree"], counted["vertices"], ".", markersize=4, color="#0072b2" if side == "user" else "#d55e00"
        )
        axes.set(xlabel=f"{side} degree", ylabel=f"{side}s")
        axes.grid(which="major", alpha=0.3)
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata={"Date": None})
    return image.getvalue()[image.getvalue().index("<svg") :]


report_task = task(name="report", task_run_name="report", cache_policy=NO_CACHE, persist_result=False)(report)
