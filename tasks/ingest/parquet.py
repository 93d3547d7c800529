"""Recognise the columns of a Parquet log."""

from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.column_names import UnknownColumns, find_unread_times, match_columns, pair_clock
from oneclass.tasks.ingest.log_format import LogFormat, find_doubts
from oneclass.tasks.ingest.times import detect_time_formats, join_clocks
from oneclass.tasks.stores.home import escape_path

SAMPLE_ROWS = 1000
NUMBERS_AND_TEXT = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UINTEGER",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
    "VARCHAR",
)
DATES_AND_CLOCKS = ("DATE", "TIME", "TIMESTAMP")
NESTED_OR_BINARY = ("STRUCT", "MAP", "UNION", "BLOB", "BIT")


def detect_parquet_format(path: Path, dataset: Dataset) -> LogFormat:
    """Detect the layout of a Parquet log from its schema.

    Raises:
        InputError: it is cut short, damaged or empty, or lacks columns.
    """
    try:
        with duckdb.connect() as connection:
            scan = connection.read_parquet(escape_path(path), hive_partitioning=False)
            columns, types, empty = scan.columns, [str(one) for one in scan.types], not scan.limit(1).fetchall()
            places, lacking = match_columns(columns, dataset.columns)
            samples = {
                name: _sample_texts(scan, name)
                for name, duckdb_type in zip(columns, types, strict=True)
                if duckdb_type in (*NUMBERS_AND_TEXT, *DATES_AND_CLOCKS)
            }
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not a complete Parquet file ({reason}). Fetch it again.") from error
    if empty:
        raise InputError(f"{path}: is empty. Give a log with at least one row, or leave it out.")
    if lacking:
        raise UnknownColumns(str(path), columns, lacking, dataset, samples)
    names = pair_clock({role: columns[place - 1] for role, place in places.items()}, samples, dataset.columns.time)
    type_of = dict(zip(columns, types, strict=True))
    role_types = {role: type_of[name] for role, name in names.items()}
    values = {role: samples[name] for role, name in names.items() if name in samples}
    if "clock" in names:
        values["time"] = join_clocks(values["time"], values["clock"])
    has_text_times = "clock" in names or role_types.get("time") in (*NUMBERS_AND_TEXT, "TIME")
    text_ids = {role: values[role] for role in ("user", "item") if role_types[role] == "VARCHAR"}
    for role, duckdb_type in role_types.items():
        if duckdb_type.endswith("]") or duckdb_type.startswith(NESTED_OR_BINARY):
            raise InputError(
                f"{path}: the column {names[role]} of the {role} has the type {duckdb_type}; single numbers or texts "
                "are needed. Name another column under [columns], or write a copy with one value a row."
            )
    return LogFormat(
        "parquet",
        columns=tuple(names.items()),
        types=tuple(role_types.items()),
        doubts=find_doubts(text_ids, dataset) + find_unread_times(names, samples, dataset),
        has_row_numbers=any(name.lower() == "file_row_number" for name in columns),
        time_formats=detect_time_formats(f"{path}, column {names['time']}", values["time"], dataset)
        if has_text_times
        else (),
    )


def _sample_texts(scan: duckdb.DuckDBPyRelation, column: str) -> list[str]:
    quoted = '"' + column.replace('"', '""') + '"'
    text = f"if(typeof({quoted}) = 'DOUBLE', try_cast({quoted} as hugeint)::varchar, {quoted}::varchar)"
    return [text or "" for (text,) in scan.limit(SAMPLE_ROWS).project(text).fetchall()]
