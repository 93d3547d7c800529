"""Fill in the SQL statements that parse the lines of a log, or the rows of a Parquet log, into events and rejects."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import times
from oneclass.tasks.ingest.log_format import LogFormat
from oneclass.tasks.stores.home import escape_path

MAX_ID_BYTES = 10_000
"""Longer ids are damage, and would cost memory in every table."""


def event_bounds(dataset: Dataset) -> dict[str, str]:
    """Return the conditions of the statements that reject an event: values out of range, long ids, and impossible
    dates, among them those that are still to come.

    DuckDB parses `204-01-01`, from a damaged line, as a date in the year 204.
    """
    low, high = dataset.value_min, dataset.value_max
    # In UTC.
    latest = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=dataset.max_future_days)
    return {
        "below": "false" if low is None else f"value < '{low!r}'::double",
        "above": "false" if high is None else f"value > '{high!r}'::double",
        "value_min": f"{low:g}" if low is not None else "",
        "value_max": f"{high:g}" if high is not None else "",
        "longest_id": str(MAX_ID_BYTES),
        "dated": f"(occurred_at between timestamp '1000-01-01' and timestamp '{latest}')",
        "latest": f"timestamp '{latest}'",
        "future_days": f"{dataset.max_future_days:g}",
    }


def find_multiline_quotes(layout: LogFormat) -> str:
    """Return the statement that creates ingest_unpaired: lines where a quoted field may begin or end."""
    escaped = re.escape(layout.delimiter)
    return sql.statement(
        "ingest/unpaired",
        begins=_quote_literal(f'(^|{escaped})"([^"]|"")*$'),
        ends=_quote_literal(f'^([^"]|"")*"($|{escaped})'),
        header_lines=str(layout.header_lines),
    )


def parse_text(
    layout: LogFormat, dataset: Dataset, is_utf8: bool, bounds: Mapping[str, str], quoted_field_condition: str
) -> str:
    """Return the statement with one row per event of a log of delimited fields or JSON lines.

    Args:
        is_utf8: whether all bytes are UTF-8; damage counts in the fields that are read.
        bounds: of `event_bounds`.
        quoted_field_condition: the condition that a line is part of a quoted field of several lines.
    """
    fields = _json_fields(layout) if layout.statement == "json" else _delimited_fields(layout, dataset)
    conditions = ["not starts_with(line, '#')"] if layout.comments else []
    no_events = [*([layout.header] if layout.header else []), *layout.skipped]
    conditions += [f"line <> {_quote_literal(line)}" for line in no_events]
    named = sql.statement(
        "ingest/fields",
        header_lines=str(layout.header_lines),
        is_data=" and ".join(conditions) or "true",
        **{"value": "'1'", "time": "null::varchar", "event": ""} | fields,
    )
    return sql.statement(
        "ingest/parse",
        named=named,
        item="unnest(if(len(item_id) > 0, item_id, [null]))" if layout.item_lists else "item_id",
        number=_as_number(layout.decimal),
        fields=str(layout.fields),
        malformed="is not JSON" if layout.statement == "json" else "quotes do not pair",
        damaged="false" if is_utf8 else "coalesce(contains(user_id || item_id, chr(65533)), false)",
        spoilt=quoted_field_condition,
        occurred_at=times.to_utc(layout.time_formats, dataset.timezone),
        **_id_conditions(dataset),
        **_kind_conditions(dataset),
        **_time_condition(layout),
        **bounds,
    )


def parse_adjacency(layout: LogFormat, is_utf8: bool, bounds: Mapping[str, str]) -> str:
    """Return the statement with one row per item of a log of adjacency lists."""
    marks = "' ' || chr(9)"
    split = f"string_split_regex(trim(line, {marks}), '[ \\t]+')"
    if layout.delimiter != " ":
        fields = _delimited_fields(layout, Dataset(name="lists"))["split"]
        split = f"list_filter(list_transform({fields}, lambda f: trim(f, {marks})), lambda f: f <> '')"
    return sql.statement(
        f"ingest/{layout.statement}",
        split=split,
        damaged="false" if is_utf8 else "contains(line, chr(65533))",
        **bounds,
    )


def parse_parquet(path: Path, file_id: int, layout: LogFormat, dataset: Dataset, bounds: Mapping[str, str]) -> str:
    """Return the statement with one row per row of a Parquet log."""
    columns = {role: '"' + str(name).replace('"', '""') + '"' for role, name in layout.columns}
    types = dict(layout.types)
    named = sql.statement(
        "ingest/parquet",
        file_id=str(file_id),
        path=_quote_literal(escape_path(path)),
        user=_as_text(columns["user"], types["user"]),
        item=_as_text(columns["item"], types["item"]),
        value=columns.get("value", "1"),
        time=_parquet_time(columns, types),
        event=f", trim({columns['event']}::varchar, ' ') as event" if "event" in columns else "",
        row_number="row_number() over ()" if layout.has_row_numbers else "file_row_number + 1",
        numbered=str(not layout.has_row_numbers).lower(),
    )
    is_text = types.get("value") == "VARCHAR"
    is_instant = "clock" not in types and types.get("time", "DATE").startswith(("TIMESTAMP", "DATE"))
    has_zone = "WITH TIME ZONE" in types.get("time", "")
    return sql.statement(
        "ingest/parse",
        named=named,
        item="item_id",
        number=_as_number("") if is_text else "try_cast(value as double)",
        fields="1",
        malformed="",
        damaged="false",
        spoilt="false",
        occurred_at=times.localise("time", "UTC" if has_zone else dataset.timezone)
        if is_instant
        else times.to_utc(layout.time_formats, dataset.timezone),
        **_id_conditions(dataset),
        **_kind_conditions(dataset),
        **_time_condition(layout),
        **bounds,
    )


def _delimited_fields(layout: LogFormat, dataset: Dataset) -> dict[str, str]:
    delimiter = _quote_literal(layout.delimiter)
    split = f"string_split(line, {delimiter})"
    if layout.delimiter == " ":
        split = "string_split_regex(trim(line, ' ' || chr(9)), '[ \\t]+')"
    elif layout.is_quoted:
        escaped = re.escape(layout.delimiter)
        pattern = _quote_literal(f'{escaped}("(?:[^"]|"")*"|[^"{escaped}][^{escaped}]*|)')
        split = sql.statement("ingest/quoted_fields", delimiter=delimiter, pattern=pattern)
    columns = _join_clock({role: f"field[{place}]" for role, place in layout.columns})
    if "event" in columns:
        columns["event"] = f", trim({columns['event']}, ' ') as event"
    if layout.item_lists:
        columns["item"] = f"string_split({columns['item']}, {_quote_literal(dataset.item_separator)})"
    return {"split": split, **columns}


def _json_fields(layout: LogFormat) -> dict[str, str]:
    columns = {role: f"json_extract_string(line, {_quote_literal(str(path))})" for role, path in layout.columns}
    columns = _join_clock({role: f"if(json_valid(line), {column}, null)" for role, column in columns.items()})
    if "event" in columns:
        columns["event"] = f", trim({columns['event']}, ' ') as event"
    return {"split": "if(json_valid(line), [line], null)", **columns}


def _join_clock(columns: dict[str, str]) -> dict[str, str]:
    """Return the expressions of the roles, with the time of day added to that of the time."""
    if "clock" not in columns:
        return columns
    rest = {role: column for role, column in columns.items() if role != "clock"}
    return {**rest, "time": times.join_clock(columns["time"], columns["clock"])}


def _as_number(decimal: str) -> str:
    """Return the number that the text `value` is; null where it is none."""
    # DuckDB reads 5_0 as 50.
    plain = "if(contains({value}, '_'), null, try_cast({value} as double))"
    if not decimal:
        return plain.format(value="value")
    thousands = "." if decimal == "," else ","
    grouped = f"regexp_full_match(value, '-?\\d{{1,3}}([{thousands}]\\d{{3}})+([{decimal}]\\d+)?')"
    number = plain.format(value=f"replace(replace(value, '{thousands}', ''), '{decimal}', '.')")
    return f"case when not contains(value, '{thousands}') or {grouped} then {number} end"


def _as_text(column: str, duckdb_type: str) -> str:
    """Return a column's ids as text: whole numbers without decimals, and none for NaN."""
    if not duckdb_type.startswith(("FLOAT", "DOUBLE", "DECIMAL")):
        return f"{column}::varchar"
    number = f"{column}::double"
    return (
        f"case when isfinite({number}) then if({number} = trunc({number}), {number}::hugeint::varchar, "
        f"{column}::varchar) end"
    )


def _parquet_time(columns: Mapping[str, str], types: Mapping[str, str]) -> str:
    """Return the expression of a time, or of its text, from the columns of a Parquet log."""
    if "time" not in columns:
        return "null::timestamp"
    column, duckdb_type = columns["time"], types["time"]
    if "clock" in columns:
        return times.join_clock(f"{column}::varchar", f"{columns['clock']}::varchar")
    if "WITH TIME ZONE" in duckdb_type:
        return f"{column} at time zone 'UTC'"
    return f"{column}::timestamp" if duckdb_type.startswith(("TIMESTAMP", "DATE")) else _as_text(column, duckdb_type)


def _time_condition(layout: LogFormat) -> dict[str, str]:
    return {"has_time": str("time" in dict(layout.columns)).lower()}


def _id_conditions(dataset: Dataset) -> dict[str, str]:
    """Return the conditions that an id stands for a missing one."""
    missing = dataset.missing_ids
    # `in` becomes a join with every line; `and` below `not` evaluates the pattern for every line.
    pattern = _quote_literal("|".join(map(re.escape, missing)))
    codes = sorted({ord(text[0]) for text in missing if text})
    conditions = {}
    for role in ("user", "item"):
        starts = " or ".join(f"ascii({role}_id) = {code}" for code in codes) or "false"
        conditions[f"no_{role}"] = f"if({starts}, regexp_full_match({role}_id, {pattern}), false)"
    return conditions


def _kind_conditions(dataset: Dataset) -> dict[str, str]:
    """Return the condition that the data set's file does not name an event's kind, and the reason to reject it."""
    if not dataset.events:
        return {"kind": "", "unknown_kind": "false", "kind_reason": "null"}
    return {
        "kind": ", event",
        "unknown_kind": f"coalesce(event not in ({', '.join(map(_quote_literal, dataset.events))}), true)",
        "kind_reason": "if(coalesce(event, '') = '', 'names no kind of event', "
        "'unknown kind of event ' || left(event, 100))",
    }


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
