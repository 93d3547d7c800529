"""Write the folder that a paper cites a run by: its table, what it was made of, and the script that makes it again."""

import json
import platform
import shlex
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.leaderboard import LeaderboardRow, format_markdown, group_by_protocol, load_leaderboard
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.settings import restore_settings
from oneclass.tasks.stores import durable, fits, warehouse
from oneclass.tasks.stores.home import Home

LIBRARIES = ("oneclass", "numpy", "scipy", "numba", "duckdb", "polars")
STAGES = ("demo", "ingest", "binarize", "split", "evaluate")  # those that decide tables' numbers, beside the models
ESCAPES = str.maketrans({character: f"\\{character}" for character in "_%&#$"})
LATEX = r"""\begin{{table}}
\caption{{{title}, {users}. Means over users with one standard error. Bold: the best by {metric}; $=$: cannot be told
from it over the same users (paired tests, Holm's procedure over all lists, 5\,\%).}}
\label{{tab:{protocol}}}
\begin{{tabular}}{{ll{columns}}}
\toprule
{head} \\
\midrule
{lines}
\bottomrule
\end{{tabular}}
\end{{table}}
"""
CSV_COLUMNS = (
    "protocol", "model", "score", "metric", "value", "standard_error", "users", "standing", "difference_from_best",
    "corrected_p_value",
)  # fmt: skip
SCRIPT = """#!/bin/sh
# Make the table again, in the home $1 or a temporary one, and compare it with this folder's.
set -e
folder=$(cd "$(dirname "$0")" && pwd)
home=${{1:-$(mktemp -d)}}
mkdir -p "$home/datasets"
cp "$folder/"{dataset}.toml "$home/datasets" 2> /dev/null || true
oneclass backfill {arguments} --config "$folder/settings.toml" --home "$home"
oneclass cite --dataset {dataset} --home "$home" --out "$home/citation"
cmp "$folder/table.csv" "$home/citation/table.csv"
echo "The table is the same, bit for bit."
"""


def write_citation(home: Home, run_id: str | None, target: Path | None) -> Path:
    """Write the folder of an evaluated run, by default the latest, and return its path.

    Args:
        target: by default `<home>/<dataset>/citations/<run>`; files of the same names are replaced.

    Raises:
        InputError: there is no such run.
        OneclassError: the folder cannot be written.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        # one row per evaluated run, the last first
        query = "select run_id, settings, code_version, ended_at from operations.evaluated_runs order by place desc"
        runs = warehouse.query(connection, query)
        chosen = runs if run_id is None else runs.filter(run_id=run_id)
        if chosen.is_empty():
            known = ", ".join(runs["run_id"].head(5)) or "none"
            raise InputError(f"--run {run_id or ''}: {home.dataset} has no such evaluated run. The latest: {known}.")
        evaluated: tuple[str, str, str, datetime] = chosen.row(0)
        run_id, settings, code_version, ended_at = evaluated
        # one row per log file
        query = "select path, sha256, bytes, events from operations.log_files where ingested_at <= $until order by path"
        files = warehouse.query(connection, query, until=ended_at).to_dicts()
        # one row per protocol or fold and model
        query = "select protocol, model, digest from operations.model_fits where run_id = $run_id order by rowid"
        fitted = warehouse.query(connection, query, run_id=run_id).rows()
        # one row per model that has settings to search
        query = "select model, origin, settings from operations.model_settings where run_id = $run_id"
        searched = {model: row for model, *row in warehouse.query(connection, query, run_id=run_id).rows()}
        table = load_leaderboard(connection, run_id)
    dataset, settings = load_dataset(home.dataset, home.root), json.loads(settings)
    found = {protocol: fits.find_fit(home, *fit, checked=False) for protocol, *fit in reversed(fitted)}
    splits = {protocol: fit and fit.matrices for protocol, fit in found.items()}
    described = {
        "run": run_id,
        "dataset": dataset.model_dump(mode="json", include={"name", "title", "urls", "licence"}),
        "files": files,
        "splits": splits,
        "code_version": code_version,
        "written_with": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
    }
    models = dict.fromkeys(model for _, model, _ in fitted if any(row.model == model for row in table))
    arguments = _list_arguments(home.dataset, settings, models, group_by_protocol(table), files)
    texts = {
        "table.md": format_markdown(table, dataset.title),
        "table.tex": format_latex(table, dataset.title),
        "table.csv": format_csv(table),
        "run.json": json.dumps(described, indent=2) + "\n",
        "settings.toml": _format_settings(settings, models, searched),
        "reprint.sh": SCRIPT.format(dataset=shlex.quote(home.dataset), arguments=shlex.join(arguments)),
    }
    own_file = home.root / "datasets" / f"{home.dataset}.toml"
    texts |= {own_file.name: own_file.read_text(encoding="utf-8")} if own_file.is_file() else {}
    target = home.folder / "citations" / run_id if target is None else target
    try:
        with home.writing():
            durable.make_folder(target.absolute())
            for name, text in texts.items():
                durable.write_text(target / f".{name}", target / name, text)
    except OSError as error:
        raise OneclassError(f"{target}: cannot be written ({error.strerror}). Choose another --out.") from error
    return target


def _list_arguments(
    dataset: str, settings: dict[str, Any], models: Iterable[str], protocols: Iterable[str], files: list[dict[str, Any]]
) -> list[str]:
    """List the arguments of `oneclass backfill` that make the table again, but for the home and the settings."""
    arguments = ["--dataset", dataset, "--seed", str(settings["seed"])]
    arguments += ["--models", ",".join(models), "--protocols", ",".join(protocols)]
    for name in ("since", "until"):
        arguments += [f"--{name}", str(settings[name])] if settings.get(name) else []
    if settings.get("split_files"):
        return [*arguments, "--split-files", *settings["split_files"]]
    # The demo simulates its log.
    return arguments if "demo" in settings else [*arguments, "--source", *(file["path"] for file in files)]


def _format_settings(settings: dict[str, Any], models: Iterable[str], searched: dict[str, list[str]]) -> str:
    """Return a run's settings in TOML, those of models as every fit had them, so that nothing is searched anew.

    Args:
        searched: origin and settings as JSON, by model.
    """
    stored = {name: settings[name] for name in STAGES if name in settings}
    for model in models:
        origin, chosen = searched.get(model, ("", ""))
        # A blend that the run weighed has other weights in each protocol, and is weighed again.
        if model != "blend" or origin != "search":
            stored[model] = json.loads(chosen) if chosen else settings["models"][model]
    # A run of an earlier version stored settings that are gone.
    sections = {name: restore_settings(name, section).model_dump(mode="json") for name, section in stored.items()}
    # `protocol` says by whose validation part a blend is weighed.
    of_publish = {name: settings["publish"][name] for name in ("seen", "protocol")}
    lines: list[str] = []
    for name, keys in (sections | {"train": {"tune": "off"}, "publish": of_publish}).items():
        # TOML has no null; what is null has null as its default.
        lines += [f"[{name}]", *(f"{key} = {_format_value(of)}" for key, of in keys.items() if of is not None), ""]
    return "\n".join(lines)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_format_value(of)}" for key, of in value.items() if of is not None)
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join(map(_format_value, value))}]" if isinstance(value, list) else json.dumps(value)


def format_latex(table: list[LeaderboardRow], title: str) -> str:
    """Format a `table` environment per protocol; the package booktabs sets its rules."""
    blocks = []
    for name, rows in group_by_protocol(table).items():
        metrics = [metric for metric in PROTOCOLS[name].main_metrics if metric in rows[0].cells]
        cells = [[row.model, row.score, *(_format_cell(row, metric, metrics[0]) for metric in metrics)] for row in rows]
        blocks.append(
            LATEX.format(
                title=f"{title}: {PROTOCOLS[name].title}".translate(ESCAPES),
                users=rows[0].described_users,
                metric=metrics[0].replace("_", r"\_"),
                protocol=name,
                columns="r" * len(metrics),
                head=" & ".join(["Model", "Score", *metrics]).replace("_", r"\_"),
                lines="\n".join(" & ".join(line).replace("_", r"\_") + r" \\" for line in cells),
            )
        )
    return "\n".join(blocks)


def _format_cell(row: LeaderboardRow, metric: str, main: str) -> str:
    if metric not in row.cells:
        return "--"
    value, error = row.cells[metric]
    standing = row.standing if metric == main else ""
    number = rf"\textbf{{{value:.4f}}}" if standing == "best" else f"{value:.4f}"
    return number + ("$^{=}$" if standing == "level" else "") + ("" if error is None else rf" $\pm$ {error:.4f}")


def format_csv(table: list[LeaderboardRow]) -> str:
    """Format a row per protocol, model, score and metric, with the digits that make the same double again."""
    rows = []
    for row in table:
        for metric, cell in row.cells.items():
            is_main, marks = metric == PROTOCOLS[row.protocol].main_metric, [None] * 3
            if is_main:
                against = row.against_best
                marks = [row.standing or "worse", against and against.difference, against and against.p_value]
            rows.append([row.protocol, row.model, row.score, metric, *cell, row.users, *marks])
    return pl.DataFrame(rows, CSV_COLUMNS, orient="row", infer_schema_length=None).write_csv()
