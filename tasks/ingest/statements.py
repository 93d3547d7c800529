"""Fill in the SQL statements that parse the lines of a log, or the rows of a Parquet log, into events and rejects."""

import re
from collections.abc import Mapping
from pathlib import Path

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.formats import LogFormat

MAX_ID_BYTES = 10_000
"""Longer ids are damage, and would cost memory in every table."""


def event_bounds(dataset: Dataset) -> dict[str, str]:
    """Return the conditions of the statements that reject an event: values out of range, long ids, and impossible dates.

    DuckDB parses `204-01-01`, from a damaged line, as a date in the year 204.
    """
    low, high = dataset.value_min, dataset.value_max
    return {
        "below": "false" if low is None else f"value < '{low!r}'::double",
        "above": "false" if high is None else f"value > '{high!r}'::double",
        "value_min": f"{low:g}" if low is not None else "",
        "value_max": f"{high:g}" if high is not None else "",
        "longest_id": str(MAX_ID_BYTES),
        "dated": "(occurred_at between timestamp '1000-01-01' and timestamp '9999-12-31 23:59:59.999999')",
    }


def find_multiline_quotes(layout: LogFormat) -> str:
    """Return the statement that creates ingest_unpaired: lines where a quoted field over several lines may begin or end."""
    escaped = re.escape(layout.delimiter)
    return sql.statement(
        "ingest/unpaired",
        begins=_quote_literal(f'(^|{escaped})"([^"]|"")*$'),
        ends=_quote_literal(f'^([^"]|"")*"($|{escaped})'),
        header_lines=str(layout.header_lines),
    )


def parse_delimited(layout: LogFormat, damaged: str, bounds: Mapping[str, str], quoted_field_condition: str) -> str:
    """Return the statement with one row per line of delimited fields.

    Args:
        damaged: the condition that a line has bytes that are not UTF-8.
        bounds: of `event_bounds`.
        quoted_field_condition: the condition that a line is part of a quoted field of several lines.
    """
    places, delimiter = dict(layout.places), _quote_literal(layout.delimiter)
    split = f"string_split(line, {delimiter})"
    if layout.quoted:
        escaped = re.escape(layout.delimiter)
        pattern = _quote_literal(f'{escaped}("(?:[^"]|"")*"|[^"{escaped}][^{escaped}]*|)')
        split = sql.statement("ingest/quoted_fields", delimiter=delimiter, pattern=pattern)
    return sql.statement(
        "ingest/delimited",
        split=split,
        header_lines=str(layout.header_lines),
        fields=str(layout.fields),
        user=f"field[{places['user']}]",
        item=f"field[{places['item']}]",
        value=f"field[{places['value']}]" if "value" in places else "'1'",
        time=f"field[{places['time']}]" if "time" in places else "null::varchar",
        has_time=str("time" in places).lower(),
        damaged=damaged,
        spoilt=quoted_field_condition,
        **bounds,
    )


def parse_parquet(path: Path, file_id: int, layout: LogFormat, bounds: Mapping[str, str]) -> str:
    """Return the statement with one row per row of a Parquet log."""
    columns = {role: '"' + str(name).replace('"', '""') + '"' for role, name in layout.places}
    return sql.statement(
        "ingest/parquet",
        file_id=str(file_id),
        path=_quote_literal(escape_path(path)),
        user=columns["user"],
        item=columns["item"],
        value=columns.get("value", "1"),
        time=columns.get("time", "null"),
        has_time=str("time" in columns).lower(),
        row_number="row_number() over ()" if layout.has_row_numbers else "file_row_number + 1",
        numbered=str(not layout.has_row_numbers).lower(),
        **bounds,
    )


def escape_path(path: Path) -> str:
    """Escape DuckDB's glob characters in a path."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
