"""Write the folder that a paper cites a run by."""

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from oneclass.models.evaluation.definitions import find_definition
from oneclass.models.registry import MODELS
from oneclass.tasks.citation.checklist import build_checklist, format_checklist
from oneclass.tasks.citation.libraries import add_libraries
from oneclass.tasks.citation.library_files import load_library_file
from oneclass.tasks.citation.record import RunRecord, load_run, load_split_hashes
from oneclass.tasks.citation.rerun import format_script, format_settings
from oneclass.tasks.citation.tables import format_csv, format_latex
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.leaderboard import format_markdown
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import durable, runs
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.machine import list_packages


def write_citation(home: Home, run_id: str | None, target: Path | None, libraries: Sequence[Path] = ()) -> Path:
    """Write the folder of an evaluated run, by default the latest, and return its path.

    Args:
        target: by default `<home>/<dataset>/citations/<run>`; files of the same names are replaced.
        libraries: files of benchmarks.libraries, whose rows are added to the tables.

    Raises:
        InputError: there is no such run, or the rows of libraries are not of its split and test users.
        OneclassError: the folder cannot be written, or the run's fits are gone.
    """
    record = load_run(home, load_dataset(home.dataset, home.root), run_id)
    record = add_libraries(home, record, list(map(load_library_file, libraries)))
    target = home.folder / "citations" / record.run_id if target is None else target
    try:
        with home.writing():
            durable.make_folder(target.absolute())
            for name, text in _format_files(home, record).items():
                durable.write_text(target / f".{name}", target / name, text)
    except OSError as error:
        raise OneclassError(f"{target}: cannot be written ({error.strerror}). Choose another --out.") from error
    return target


def _format_files(home: Home, record: RunRecord) -> dict[str, str]:
    """Return the text of each file by its name."""
    title, code_version = record.dataset.title, runs.get_code_version()
    split_hashes = {protocol: load_split_hashes(home, digest) for protocol, digest in record.splits.items()}
    checklist = build_checklist(record, code_version, split_hashes)
    of_libraries = [file.table.describe_row(row) for file in record.libraries for row in file.table.library_rows]
    own_file = home.root / "datasets" / f"{record.dataset.name}.toml"
    found = {
        "table.md": format_markdown(record.leaderboard, title),
        "table.tex": format_latex(record.leaderboard, title),
        "table.csv": format_csv(record.leaderboard),
        "metrics.csv": record.metrics.write_csv(),
        "comparisons.csv": record.comparisons.write_csv(),
        "trials.csv": _list_trials(record).write_csv(),
        "run.toml": format_settings(record),
        "run.json": _format_json(_describe_run(record, split_hashes)),
        "rows.json": _format_json([*(_describe_row(record, model) for model in record.models), *of_libraries]),
        "checklist.md": format_checklist(checklist),
        "environment.lock": _format_lock(record),
        "CITATION.cff": _format_cff(record),
        "reprint.sh": format_script(record, has_own_file=own_file.is_file()),
    }
    found |= {file.name_in_citation: file.text for file in record.libraries}
    if record.seeds["seed"].n_unique() > 1:
        found["seeds.csv"] = record.seeds.write_csv()
    if own_file.is_file():
        found["dataset.toml"] = own_file.read_text(encoding="utf-8")
    return found


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _describe_run(record: RunRecord, split_hashes: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "run": record.run_id,
        "dataset": record.dataset.model_dump(mode="json", include={"name", "title", "urls", "licence"}),
        "files": record.files.to_dicts(),
        "interactions": record.interactions,
        "preprocessing": record.steps.to_dicts(),
        "protocols": {
            name: {"meaning": PROTOCOLS[name].meaning, "tuned_by": PROTOCOLS[name].tuned_by}
            for name in record.protocols
        },
        "splits": {name: {"digest": of, "sha256": split_hashes[name]} for name, of in record.splits.items()},
        "metrics": {name: vars(of) for name in record.metric_names if (of := find_definition(name))},
        "seed": record.settings["seed"],
        "code_version": record.code_version,
        "limits": record.settings.get("limits"),
        "warm_start": bool(record.settings.get("train", {}).get("warm_start")),
        "machine": record.machine,  # with the energy that it drew in the run
        "fit_cpu_seconds": record.fit_cpu_seconds,
        "libraries": [
            file.table.model_dump(include={"protocol", "trials", "seconds", "seed", "threads", "machine"})
            for file in record.libraries
        ],
    }


def _describe_row(record: RunRecord, model: str) -> dict[str, Any]:
    of_model = record.fits.filter(model=model).drop("model").to_dicts()
    return {
        "model": model,
        "title": (MODELS[model].__doc__ or model).splitlines()[0],
        "seed": record.settings["seed"],
        "settings": record.effective_settings(model),
        "search": record.describe_search(model),
        "fits": [fit | {"effective": record.effective[fit["digest"]]} for fit in of_model],
    }


def _list_trials(record: RunRecord) -> pl.DataFrame:
    """List a row per trial of the table's models: where it was made, what it found, and its settings as JSON."""
    of_table = record.trials.filter(pl.col("model").is_in(record.metrics["model"].unique().implode()))
    return of_table.select("model", pl.exclude("model", "settings"), "settings")


def _format_lock(record: RunRecord) -> str:
    """Return a requirements file that pins the packages of the run; of this program if the run did not record them."""
    if record.packages is None:
        head, packages = f"Python {platform.python_version()}, not recorded by the run", list_packages()
    else:
        head, packages = f"Python {record.machine['python'] if record.machine else ''}", record.packages
    return "\n".join([f"# {head}", *(f"{name}=={of}" for name, of in packages.items()), ""])


def _format_cff(record: RunRecord) -> str:
    """Return how to cite the program and the data, in the Citation File Format 1.2."""
    text = json.dumps  # a JSON string is a YAML string
    urls = [f"    url: {text(url)}" for url in record.dataset.urls[:1]]
    return "\n".join(
        [
            "cff-version: 1.2.0",
            "message: If you use this table, please cite the program, the data set and the papers of the models.",
            "title: Oneclass",
            "type: software",
            f"version: {version('oneclass')}",
            "authors:",
            "  - name: The Oneclass authors",
            "references:",
            "  - type: data",
            f"    title: {text(record.dataset.title)}",
            "    authors:",
            "      - name: The authors of the data set",
            *urls,
            "",
        ]
    )
