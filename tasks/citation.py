"""Write the folder that a paper cites a run by: its table in LaTeX and CSV, its settings, log files and versions."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.leaderboard import (
    DIFFERENCE_LABEL,
    LeaderboardRow,
    format_cells,
    group_by_protocol,
    load_leaderboard,
)
from oneclass.tasks.protocols import PROTOCOLS, list_main_metrics
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home

LIBRARIES = ("oneclass", "numpy", "scipy", "numba", "duckdb", "polars")
ESCAPES = str.maketrans({character: f"\\{character}" for character in "_%&#$"})
LATEX = r"""\begin{{table}}
\caption{{{title}, {users}. Means over users with one standard error. Bold: the best by {metric}; =: cannot be told
from it over the same users (paired tests, Holm's procedure over all lists, 5\,\%); †: fitted here only.}}
\label{{tab:{protocol}}}
\begin{{tabular}}{{ll{columns}}}
\toprule
{head}
\midrule
{lines}
\bottomrule
\end{{tabular}}
\end{{table}}
"""


def write_citation(home: Home, run_id: str | None) -> Path:
    """Write `<home>/<dataset>/citations/<run>` for an evaluated run, by default the latest, and return the folder.

    Raises:
        InputError: there is no such run.
        OneclassError: the folder cannot be written.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        # one row per evaluated run, the last first
        query = "select run_id, settings, code_version, ended_at from operations.evaluated_runs order by place desc"
        runs = warehouse.query(connection, query).rows()
        chosen = [run for run in runs if run_id in (None, run[0])]
        if not chosen:
            known = ", ".join(run[0] for run in runs[:5]) or "none"
            raise InputError(f"--run {run_id or ''}: {home.dataset} has no such evaluated run. The latest: {known}.")
        cited, settings, code_version, ended_at = chosen[0]
        # one row per log file
        query = "select path, sha256, bytes, events from operations.log_files where ingested_at <= $until order by path"
        files = warehouse.query(connection, query, until=ended_at).to_dicts()
        # one row per model that has settings to search
        query = "select model, settings from operations.model_settings where run_id = $run_id and settings is not null"
        searched = warehouse.query(connection, query, run_id=cited).rows()
        table = load_leaderboard(connection, cited)
        numbers = warehouse.select(connection, "publish/main_table", run_id=cited, main_metrics=list_main_metrics())
    dataset, settings = load_dataset(home.dataset, home.root), json.loads(settings)
    described = {
        "run": cited,
        "dataset": dataset.model_dump(mode="json", include={"name", "title", "urls", "licence"}),
        "files": files,
        "settings": {**settings, "models": settings["models"] | {model: json.loads(of) for model, of in searched}},
        "code_version": code_version,
        "written_with": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
    }
    texts = {
        "table.tex": format_latex(table, dataset.title),
        "table.csv": numbers.write_csv(),
        "run.json": json.dumps(described, indent=2) + "\n",
    }
    folder = home.folder / "citations" / str(cited)
    try:
        with home.writing():
            durable.make_folder(folder.absolute())
            for name, text in texts.items():
                durable.write_text(folder / f".{name}", folder / name, text)
    except OSError as error:
        raise OneclassError(f"{folder}: cannot be written ({error.strerror}).") from error
    return folder


def format_latex(table: list[LeaderboardRow], title: str) -> str:
    """Format a `table` environment per protocol; the package booktabs sets its rules."""
    blocks = []
    for name, rows in group_by_protocol(table).items():
        lines = [["Model", "Score", *rows[0].cells, DIFFERENCE_LABEL]]
        lines += [[row.model, row.score, *format_cells(row, r"\textbf{", "}")] for row in rows]
        head, *body = (" & ".join(line).replace("_", r"\_").replace("±", r"$\pm$") + r" \\" for line in lines)
        blocks.append(
            LATEX.format(
                title=f"{title}: {PROTOCOLS[name].title}".translate(ESCAPES),
                users=rows[0].described_users,
                metric=PROTOCOLS[name].main_metric.replace("_", r"\_"),
                protocol=name,
                columns="r" * (len(rows[0].cells) + 1),
                head=head,
                lines="\n".join(body),
            )
        )
    return "\n".join(blocks)
