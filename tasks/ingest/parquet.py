"""Parquet logs: which of their columns are which."""

from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.formats import LogFormat, describe_required_columns, match_columns
from oneclass.tasks.ingest.statements import escape_path


def detect_parquet_format(path: Path, dataset: Dataset) -> LogFormat:
    """The layout of a Parquet log from its schema.

    Raises:
        InputError: it is cut short, damaged or empty, or lacks columns.
    """
    try:
        with duckdb.connect() as connection:
            scan = connection.read_parquet(escape_path(path), hive_partitioning=False)
            found, empty = scan.columns, not scan.limit(1).fetchall()
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{path}: is not a complete Parquet file ({why}). Fetch it again.") from error
    if empty:
        raise InputError(f"{path}: is empty. Give a log with at least one row, or leave it out.")
    places, lacking = match_columns(found, dataset.columns)
    if lacking:
        raise InputError(
            f"{path}: has the columns {', '.join(found)}; a log of {dataset.name} needs {describe_required_columns(dataset.columns)}."
        )
    numbered = any(name.lower() == "file_row_number" for name in found)
    return LogFormat(
        "parquet", places=tuple((role, found[place - 1]) for role, place in places.items()), has_row_numbers=numbered
    )
