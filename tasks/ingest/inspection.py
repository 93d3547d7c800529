"""Inspect logs before a run: print how they are read, and write the data set's file."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import preview
from oneclass.tasks.ingest.column_names import UnknownColumns, guess_columns
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home


def inspect_logs(root: Path, dataset: Dataset, sources: Sequence[str], *, write: bool) -> str:
    """Return how logs are read, and write the data set's file if `write`.

    Logs with columns of unknown names are read by what the names suggest, if that leaves no doubt and the file is to be
    written. If they are refused, the file gets the lines of the refusal, commented out.

    Args:
        root: the folder of homes.
        sources: paths of logs; by default the query of the data set's `[source]`, else its landing folder.

    Raises:
        InputError: the logs are refused, or the file is to be written and exists.
    """
    path = root / "datasets" / f"{dataset.name}.toml"
    if write and path.exists():
        raise InputError(f"{path}: exists already. Edit it, or choose another --dataset.")
    paths = sources or [str(Home(root, dataset.name).landing)]
    try:
        if dataset.source and not sources:
            shown = preview.preview_query(dataset, dataset.source)
        else:
            shown = preview.preview_logs(dataset, paths)
    except InputError as error:
        guessed = _guess_dataset(dataset, error) if write else None
        if guessed is None:
            if write and (draft := _draft_toml(dataset, error)):
                _write_file(path, draft)
                raise InputError(f"{error}\n\n{path} has these lines, commented out: correct them there.") from error
            raise
        shown = preview.preview_logs(guessed, paths)
    text = preview.format_preview(shown)
    toml = preview.format_toml(shown)
    if not write:
        return f"{text}\n\nThe data set's file, {path} (--write writes it):\n\n{toml}"
    _write_file(path, toml)
    return f"{text}\n\nThe data set's file, written to {path}:\n\n{toml}"


def _write_file(path: Path, toml: str) -> None:
    durable.make_folder(path.parent)
    durable.write_text(path.with_name(f".{path.name}"), path, toml)


def _guess_dataset(dataset: Dataset, refusal: InputError) -> Dataset | None:
    """Return the data set with the columns that the names in refused logs leave no doubt of; None if they do."""
    if not isinstance(refusal, UnknownColumns):
        return None
    chosen, is_certain = guess_columns(refusal.names, dataset)
    if not is_certain:
        return None
    columns = {role: (chosen[role].strip(),) if role in chosen else () for role in ("user", "item", "value", "time")}
    return Dataset.model_validate({**dataset.model_dump(exclude={"columns"}), "columns": columns})


def _draft_toml(dataset: Dataset, refusal: InputError) -> str:
    """Return a data set's file with the lines of a refusal commented out; nothing if it has none for that file."""
    said, *paragraphs = str(refusal).split("\n\n")
    stated = [paragraph for paragraph in paragraphs if _is_toml(paragraph)]
    lines = [said, "Correct the lines below, and remove `# ` from those that apply.", *stated]
    commented = "\n#\n".join("\n".join(f"# {line}" for line in paragraph.splitlines()) for paragraph in lines)
    return f"title = {json.dumps(dataset.title, ensure_ascii=False)}\n\n{commented}\n" if stated else ""


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False
