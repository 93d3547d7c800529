"""Recognise the columns of a Parquet log."""

from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.formats import LogFormat, describe_required_columns, match_columns
from oneclass.tasks.ingest.statements import escape_path


def detect_parquet_format(path: Path, dataset: Dataset) -> LogFormat:
    """Detect the layout of a Parquet log from its schema.

    Raises:
        InputError: it is cut short, damaged or empty, or lacks columns.
    """
    try:
        with duckdb.connect() as connection:
            scan = connection.read_parquet(escape_path(path), hive_partitioning=False)
            columns, empty = scan.columns, not scan.limit(1).fetchall()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not a complete Parquet file ({reason}). Fetch it again.") from error
    if empty:
        raise InputError(f"{path}: is empty. Give a log with at least one row, or leave it out.")
    places, missing = match_columns(columns, dataset.columns)
    if missing:
        raise InputError(
            f"{path}: has the columns {', '.join(columns)}; a log of {dataset.name} needs {describe_required_columns(dataset.columns)}."
        )
    numbered = any(name.lower() == "file_row_number" for name in columns)
    return LogFormat(
        "parquet", places=tuple((role, columns[place - 1]) for role, place in places.items()), has_row_numbers=numbered
    )
