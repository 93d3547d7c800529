"""Recognise the fields of a log of JSON objects."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.column_names import (
    HINTS,
    UnknownColumns,
    find_unread_times,
    match_columns,
    pair_clock,
    suggest_columns,
)
from oneclass.tasks.ingest.conversions import explain_json
from oneclass.tasks.ingest.log_format import LogFormat, decimal_mark, find_doubts, find_padded_ids
from oneclass.tasks.ingest.times import detect_time_formats, join_clocks


def parse_json(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of JSON lines; lines that are none are left out."""
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _list_paths(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield (name, path, value) of each field of a JSON object; those of nested objects are joined by dots."""
    for key, value in record.items():
        name, path = f"{prefix}{key}", f'."{key}"'
        if isinstance(value, dict):
            yield from ((inner, path + below, leaf) for inner, below, leaf in _list_paths(value, f"{name}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from (
                (inner, f"{path}[*]{below}", [leaf]) for inner, below, leaf in _list_paths(value[0], f"{name}.")
            )
        elif isinstance(value, list):
            yield name, f"{path}[*]", value
        else:
            yield name, path, value


def detect_json_format(path: str, records: Sequence[dict[str, Any]], dataset: Dataset) -> LogFormat:
    """Detect the layout of a log from its first JSON objects.

    Raises:
        InputError: fields lack roles, or values or times can be read in two ways.
    """
    rows = [{name: leaf for name, _, leaf in _list_paths(record)} for record in records]
    paths: dict[str, str] = {}
    for record in records:
        for name, json_path, _ in _list_paths(record):
            paths.setdefault(name, json_path)
    names = list(paths)
    positions, lacking = match_columns(names, dataset.columns)
    samples = {name: [_as_text(row.get(name)) for row in rows] for name in names if "[*]" not in paths[name]}
    if lacking:
        if len(lacking) > 1 and not _are_usual(records) and (explained := explain_json(path, records)):
            raise InputError(explained)
        raise UnknownColumns(f"{path}, line 1 (JSON lines)", names, lacking, dataset, samples)
    chosen = {role: names[position - 1] for role, position in positions.items()}
    for role, name in chosen.items():
        if "[*]" in paths[name] and role != "item":
            others = [other for other in names if "[*]" not in paths[other]]
            raise InputError(
                f"{path}, line 1: the {role}'s field {name} is a list. Name one with single values in the data set's "
                f"file:\n\n{suggest_columns(others, dataset)}"
            )
    chosen = pair_clock(chosen, samples, dataset.columns.time)
    values = {role: [_as_text(row[name]) for row in rows if name in row] for role, name in chosen.items()}
    if "clock" in chosen:
        values["time"] = join_clocks(samples[chosen["time"]], samples[chosen["clock"]])
    return LogFormat(
        "json",
        fields=1,
        columns=tuple((role, f"${paths[name]}") for role, name in chosen.items()),
        item_lists="[*]" in paths[chosen["item"]],
        padded_ids=find_padded_ids(values),
        doubts=find_doubts({role: samples.get(name, []) for role, name in chosen.items()}, dataset)
        + find_unread_times(chosen, samples, dataset),
        decimal=decimal_mark(path, values.get("value", []), dataset),
        time_formats=detect_time_formats(f"{path}, field {chosen['time']}", values["time"], dataset)
        if "time" in values
        else (),
    )


def _are_usual(records: Sequence[dict[str, Any]]) -> bool:
    """Whether the keys of objects are names of fields: they recur, or are usual ones, as `user` is."""
    keys = [key for record in records for key in record]
    usual = {"id", "name", "event", "data", "value", *(hint for hints in HINTS.values() for hint in hints)}
    inner = [key for record in records for value in record.values() if isinstance(value, dict) for key in value]
    return len(set(keys)) < len(keys) or any(key.lower() in usual for key in (*keys, *inner))


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)
