"""The statements that turn the lines of a log, or the rows of a Parquet log, into events and rejects, filled in."""

import re
from collections.abc import Mapping
from pathlib import Path

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.formats import LogFormat

MAX_ID_BYTES = 10_000
"""No id is longer; what is longer is damage, and would cost memory in every table that holds it."""


def event_bounds(dataset: Dataset) -> dict[str, str]:
    """What bounds an event, for the statements: which values are out of range, and how long an id may be, and
    which times are dates: DuckDB takes `204-01-01`, a damaged line's, for the year 204."""
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
    """Statement that makes ingest_unpaired: lines where a quoted field may begin or end that goes over several."""
    escaped = re.escape(layout.delimiter)
    return sql.statement(
        "ingest/unpaired",
        begins=_quote_literal(f'(^|{escaped})"([^"]|"")*$'),
        ends=_quote_literal(f'^([^"]|"")*"($|{escaped})'),
        header_lines=str(layout.header_lines),
    )


def parse_delimited(layout: LogFormat, damaged: str, bounded: Mapping[str, str], quoted_field_condition: str) -> str:
    """One row per line of delimited fields.

    Args:
        damaged: the condition that a line holds bytes that are not UTF-8.
        bounded: of `bounds`.
        spoilt: the condition that a line is part of a quoted field of several.
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
        **bounded,
    )


def parse_parquet(path: Path, file_id: int, layout: LogFormat, bounded: Mapping[str, str]) -> str:
    """One row per row of a Parquet log."""
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
        **bounded,
    )


def escape_path(path: Path) -> str:
    """A path in which DuckDB finds no pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
