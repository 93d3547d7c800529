"""Parquet logs: which of their columns are which."""

from pathlib import Path

import duckdb

from tasks.datasets import Dataset
from tasks.errors import InputError
from tasks.ingest.layouts import Layout, name_columns, wanted
from tasks.ingest.statements import literal_path


def layout(path: Path, dataset: Dataset) -> Layout:
    """The layout of a Parquet log from its schema.

    Raises:
        InputError: it is cut short, damaged or empty, or lacks columns.
    """
    try:
        with duckdb.connect() as connection:
            scan = connection.read_parquet(literal_path(path), hive_partitioning=False)
            found, empty = scan.columns, not scan.limit(1).fetchall()
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{path}: is not a complete Parquet file ({why}). Fetch it again.") from error
    if empty:
        raise InputError(f"{path}: is empty. Give a log with at least one row, or leave it out.")
    places, lacking = name_columns(found, dataset.columns)
    if lacking:
        raise InputError(
            f"{path}: has the columns {', '.join(found)}; a log of {dataset.name} needs {wanted(dataset.columns)}."
        )
    numbered = any(name.lower() == "file_row_number" for name in found)
    return Layout(
        "parquet", places=tuple((role, found[place - 1]) for role, place in places.items()), has_row_numbers=numbered
    )
