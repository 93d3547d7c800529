"""Write the settings file and the script that make a run's table again."""

import json
import shlex
from pathlib import Path
from typing import Any

from oneclass.tasks.citation.record import RunRecord

COMPARED = ("table.md", "table.tex", "table.csv", "metrics.csv", "comparisons.csv")
STAGES = ("demo", "ingest", "binarize", "split", "evaluate")  # those that decide tables' numbers, beside the models


def format_settings(record: RunRecord) -> str:
    """Return the settings of a run in TOML, those of models as every fit had them, so that nothing is searched anew.

    A blend that the run weighed has other weights in each protocol, and is weighed again.
    """
    sections = {name: record.settings[name] for name in STAGES if name in record.settings}
    sections["train"] = {"tune": "off"}
    # `protocol` says by whose validation part a blend is weighed.
    sections["publish"] = {name: record.settings["publish"][name] for name in ("seen", "protocol")}
    is_weighed = record.model_settings.get("blend", {}).get("origin") == "search"
    pinned = [model for model in record.models if model != "blend" or not is_weighed]
    sections |= {model: record.effective_settings(model) for model in pinned}
    blocks = []
    for name, settings in sections.items():
        # TOML has no null; what is null has null as its default.
        lines = [f"{key} = {_format_value(value)}" for key, value in settings.items() if value is not None]
        blocks.append("\n".join([f"[{name}]", *lines, ""]))
    return "\n".join(blocks)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_format_value(of)}" for key, of in value.items() if of is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return json.dumps(value)


def list_arguments(record: RunRecord) -> list[str]:
    """Return the arguments of `oneclass backfill` that make the table again, but for the home and the settings."""
    arguments = ["--dataset", record.dataset.name, "--seed", str(record.settings["seed"])]
    arguments += ["--models", ",".join(record.models), "--protocols", ",".join(record.protocols)]
    for name in ("since", "until"):
        if record.settings.get(name):
            arguments += [f"--{name}", str(record.settings[name])]
    if split_files := record.settings.get("split_files"):
        return [*arguments, "--split-files", *split_files]
    if "demo" in record.settings:  # the run simulates its log
        return arguments
    return [*arguments, "--source", *record.files["path"]]


def find_obstacle(record: RunRecord) -> str | None:
    """Return why the script cannot make the table again; None if nothing is in its way."""
    if record.settings.get("train", {}).get("warm_start"):
        return "train.warm_start: fits began at those of earlier runs"
    if "demo" in record.settings:
        return None
    for path, size in record.files.select("path", "bytes").iter_rows():
        if not Path(path).is_file() or Path(path).stat().st_size != size:
            return f"{path} is gone or has changed"
    return None


def format_script(record: RunRecord, *, has_own_file: bool) -> str:
    """Return a script for `sh` that makes the table in another home and compares it with the folder's, byte by byte.

    Args:
        has_own_file: whether the folder has the data set's file, `dataset.toml`.
    """
    name = shlex.quote(record.dataset.name)
    files = [f'"$folder/{file.name_in_citation}"' for file in record.libraries]
    libraries = f" --libraries {' '.join(files)}" if files else ""
    own_file = [
        'mkdir -p "$home/datasets"',
        f'cp "$folder/dataset.toml" "$home/datasets/"{name}.toml',
    ]
    return "\n".join(
        [
            "#!/bin/sh",
            "# Make the table again, in the home $1 or a temporary one, and compare it with this folder's.",
            "set -e",
            'folder=$(cd "$(dirname "$0")" && pwd)',
            "home=${1:-$(mktemp -d)}",
            *(own_file if has_own_file else []),
            f'oneclass backfill {shlex.join(list_arguments(record))} --config "$folder/run.toml" --home "$home"',
            f'oneclass cite --dataset {name} --home "$home" --out "$home/citation"{libraries}',
            f'for file in {" ".join(COMPARED)}; do cmp "$folder/$file" "$home/citation/$file"; done',
            'echo "The table is the same, bit for bit."',
            "",
        ]
    )
