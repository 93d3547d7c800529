"""Load logs into `raw.events`, `raw.places` and `raw.rejects`: DuckDB parses, one statement finds the events."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest import files, times
from oneclass.tasks.ingest.columns import BLANKS
from oneclass.tasks.ingest.landing import FileRefused, refuse_unreadable
from oneclass.tasks.ingest.layouts import Layout
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores.home import escape_path
from oneclass.tasks.stores.warehouse import fetch_row

MAX_ID_BYTES = 10_000
"""Longer ids are damage, and would cost memory in every table."""
MAX_LINE_BYTES, READ_BUFFER_BYTES = 2_000_000, 32_000_000
"""DuckDB's defaults for the longest line and its buffer; both are raised for a log with longer lines."""

Numbered = tuple[int, LogFile]


def load_logs(
    connection: duckdb.DuckDBPyConnection,
    logs: Sequence[Numbered],
    scratch: Path,
    dataset: Dataset,
    report_progress: Callable[[list[Numbered], str, Callable[[Numbered], float]], Iterable[Numbered]] | None = None,
    limit: int | None = None,
) -> None:
    """Load logs into `raw.events`, `raw.places` and `raw.rejects`, inside the connection's open transaction.

    Args:
        logs: (file_id, log) of each.
        scratch: an empty folder for copies, each removed after it is read.
        dataset: its bounds decide which values are rejected.
        report_progress: yields the logs, given a description and each log's weight.
        limit: records to read of each log; all by default.

    Raises:
        FileRefused: a log cannot be read.
        OneclassError: a log changed after it was scanned, or the memory is too small.
    """
    description = f"reading {len(logs):,} logs, {sum(log.size for _, log in logs) / 1e6:,.0f} MB"
    numbered = report_progress(list(logs), description, lambda one: one[1].size) if report_progress else logs
    for file_id, log in numbered:
        copy = scratch / f"{file_id}.txt"
        try:
            with refuse_unreadable(log.location):
                _load_log(connection, file_id, log, _prepare_text(log, copy), dataset, limit)
        except duckdb.OutOfMemoryException as error:
            raise OneclassError(
                f"{log.path}: cannot be read in the memory that the run may take ({str(error).splitlines()[0]}). Give "
                "the log in smaller files, or run where more memory is free."
            ) from error
        finally:
            copy.unlink(missing_ok=True)
        if not log.signature.matches(log.location):
            raise OneclassError(files.changed_file_message(log.location))


def event_bounds(dataset: Dataset) -> dict[str, str]:
    """Return the conditions of the statements that reject an event: values out of range, long ids, and impossible
    dates, among them those that are still to come, and the first days of 1970, which stand for a missing time.

    DuckDB parses `204-01-01`, from a damaged line, as a date in the year 204.
    """
    low, high = dataset.value_min, dataset.value_max
    # In UTC.
    latest = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=dataset.max_future_days)
    undated = "occurred_at between timestamp '1969-12-31 10:00' and timestamp '1970-01-01 14:00'"
    return {
        "below": "false" if low is None else f"value < '{low!r}'::double",
        "above": "false" if high is None else f"value > '{high!r}'::double",
        "value_min": f"{low:g}" if low is not None else "",
        "value_max": f"{high:g}" if high is not None else "",
        "longest_id": str(MAX_ID_BYTES),
        "undated": undated,
        "dated": f"(occurred_at between timestamp '1000-01-01' and timestamp '{latest}' and not {undated})",
        "latest": f"timestamp '{latest}'",
        "future_days": f"{dataset.max_future_days:g}",
    }


def _prepare_text(log: LogFile, copy: Path) -> Path:
    """Return the file that DuckDB reads: the log itself, or a copy of its text, unpacked and in uniform UTF-8."""
    text = log.text
    if text is None or (
        not log.container and text.size == log.size and text.is_utf8 and not text.has_nul and text.is_uniform
    ):
        return log.location
    with files.open_text(log.location, log.container, log.encoding) as stream:
        files.copy_text(stream, copy)
    return copy


def _load_log(
    connection: duckdb.DuckDBPyConnection, file_id: int, log: LogFile, path: Path, dataset: Dataset, limit: int | None
) -> None:
    layout = log.layout
    assert layout is not None  # a log that is loaded was scanned
    parsed = _parse(log, layout, path, dataset, limit, with_line=False)
    (events,) = fetch_row(connection, sql.statement("ingest/events", parsed=parsed, file_id=str(file_id)))
    if layout.form.endswith("adjacency"):
        connection.execute(sql.statement("ingest/places", parsed=parsed, file_id=str(file_id)))
    # A log of a record a line, all of them events, needs no second look.
    if layout.form not in ("delimited", "netflix") or events != _count_records(log, layout):
        parsed = _parse(log, layout, path, dataset, limit, with_line=True)
        connection.execute(sql.statement("ingest/rejects", parsed=parsed, file_id=str(file_id)))
    if layout.form in ("delimited", "netflix"):
        broken = sql.statement("ingest/broken_lines", file_id=str(file_id), fields=str(layout.fields))
        connection.execute(f"{broken}; drop table ingest_errors; drop table ingest_scans")
    if layout.form == "delimited" and layout.names:
        _check_headers(connection, file_id, log, layout)


def _count_records(log: LogFile, layout: Layout) -> int:
    """Return the number of lines of a delimited log that are to be events."""
    assert log.text is not None
    return log.text.lines - layout.skip - (log.text.colons if layout.form == "netflix" else 0)


def _check_headers(connection: duckdb.DuckDBPyConnection, file_id: int, log: LogFile, layout: Layout) -> None:
    """Take a header that is repeated, as where files are put together, for no reject; refuse one in another order."""
    found = connection.execute(
        "delete from raw.rejects where file_id = ? and list_sort(list_transform(string_split(line, ?), "
        "lambda cell: lower(trim(trim(cell, ' '), '\"')))) = list_sort(?) returning line_number, line",
        [file_id, layout.delimiter, [name.lower() for name in layout.names]],
    ).fetchall()
    for number, line in found:
        if [cell.strip(' "').lower() for cell in line.split(layout.delimiter)] != [
            name.lower() for name in layout.names
        ]:
            raise FileRefused(
                log.location,
                f"{log.path}, line {number}: is a header with the columns in another order, so two logs are put "
                "together here. Give them as two files.",
            )


def _parse(log: LogFile, layout: Layout, path: Path, dataset: Dataset, limit: int | None, *, with_line: bool) -> str:
    """Return the statement with one row per event of a log.

    Args:
        with_line: whether the text of each line is wanted, which costs.
    """
    text = log.text
    is_clean = text is None or (text.is_utf8 and not text.has_nul)
    columns = dict(layout.columns)
    header: list[str] = []
    if layout.form == "delimited" and layout.names:
        header = [layout.names[int(columns[role]) - 1 - dataset.row_names] for role in ("user", "item")]
    # A cheap look spares most ids the trimming.
    trims = "true"
    if text and text.is_ascii:
        trims = "ends_with({0}, ' ') or ascii({0}) <= 32" if text.has_blank else "false"
    has_number = layout.form == "parquet" and dict(layout.types).get("value", "INTEGER") != "VARCHAR"
    return sql.statement(
        "ingest/parse",
        records=_name_columns(log, layout, path, with_line=with_line),
        limit="" if limit is None else f"limit {limit}",
        trims_user=trims.format("user_id"),
        trims_item=trims.format("item_id"),
        blanks=_quote(BLANKS),
        number="try_cast(value as double)" if has_number else _as_number(layout.decimal),
        skip=str(layout.skip),
        damaged="false" if is_clean else "coalesce(contains(user_id || item_id, chr(65533)), false)",
        occurred_at=_as_instant(layout, dataset),
        has_time=str("time" in columns or layout.form == "netflix").lower(),
        **_id_conditions(dataset, header),
        **_kind_conditions(dataset),
        **event_bounds(dataset),
    )


def _name_columns(log: LogFile, layout: Layout, path: Path, *, with_line: bool) -> str:
    """Return the statement with one row per record of a log, whose columns are called by their roles."""
    longest = max(MAX_LINE_BYTES, log.text.max_line_bytes + 2) if log.text else MAX_LINE_BYTES
    sizes = {
        "path": _quote(escape_path(path)),
        "longest": str(longest),
        "buffer": str(max(READ_BUFFER_BYTES, 2 * longest)),
    }
    if layout.form in ("delimited", "netflix"):
        numbers = range(1, layout.fields + 1)
        relation = sql.statement(
            "ingest/text",
            columns="{" + ", ".join(f"'c{number}': 'VARCHAR'" for number in numbers) + "}",
            skip=str(layout.skip),
            delimiter=_quote(layout.delimiter),
            quote=_quote('"' if layout.form == "delimited" and layout.is_quoted else ""),
            is_padded=str(layout.form == "netflix").lower(),
            **sizes,
        )
        cells = ", ".join(f"coalesce(c{number}, '')" for number in numbers)
        line = f"array_to_string([{cells}], {_quote(layout.delimiter)})" if with_line else "null::varchar"
        roles = _name_roles({role: f"c{place}" for role, place in layout.columns})
        return sql.statement(f"ingest/{layout.form}", relation=relation, line=line, skip=str(layout.skip), **roles)
    relation = sql.statement("ingest/lines", **sizes)
    if layout.form == "json" and layout.delimiter != "newline_delimited":
        relation = sql.statement("ingest/objects", format=_quote(layout.delimiter), **sizes)
    if layout.form == "json":
        paths = {role: _quote(f'$."{name}"') for role, name in layout.columns}
        roles = {role: f"if(json_valid(line), json_extract_string(line, {one}), null)" for role, one in paths.items()}
        return sql.statement("ingest/json", relation=relation, **_name_roles(roles))
    if layout.form == "parquet":
        return _name_parquet(layout, path, with_line=with_line)
    return sql.statement("ingest/adjacency", relation=relation, counted=str(layout.form != "adjacency").lower())


def _name_parquet(layout: Layout, path: Path, *, with_line: bool) -> str:
    types = dict(layout.types)
    columns = {role: f'"{str(name).replace(chr(34), chr(34) * 2)}"' for role, name in layout.columns}
    texts = {role: _as_text(columns[role], kind) for role, kind in types.items() if role not in ("value", "time")}
    texts |= {"value": columns["value"]} if "value" in columns else {}
    if "time" in columns:
        kind, column = types["time"], columns["time"]
        is_instant = "clock" not in columns and kind.startswith(("TIMESTAMP", "DATE"))
        zone = " at time zone 'UTC'" if "WITH TIME ZONE" in kind else "::timestamp"
        texts["time"] = f"{column}{zone}" if is_instant else _as_text(column, kind)
    has_own = any(name.lower() == "file_row_number" for name in layout.names)  # which the reader refuses
    return sql.statement(
        "ingest/parquet",
        path=_quote(escape_path(path)),
        line="to_json(log)::varchar" if with_line else "null::varchar",
        row_number="row_number() over ()" if has_own else "file_row_number + 1",
        numbered=str(not has_own).lower(),
        **_name_roles(texts),
    )


def _name_roles(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the expression of each role, with the time of day added to that of the time."""
    roles = {"value": "'1'", "time": "null::varchar", "event": "null::varchar", **columns}
    if "clock" in roles:
        roles["time"] = times.join_clock(f"{roles['time']}::varchar", f"{roles.pop('clock')}::varchar")
    return {**roles, "event": f"trim({roles['event']}, ' ')"} if "event" in columns else roles


def _as_instant(layout: Layout, dataset: Dataset) -> str:
    """Return the expression of an instant in UTC from the column `time`."""
    kinds = dict(layout.types)
    if "time" not in dict(layout.columns) and layout.form != "netflix":
        return "null::timestamp"
    if layout.form == "netflix":
        return "try_cast(time as timestamp)"
    if "clock" not in kinds and kinds.get("time", "").startswith(("TIMESTAMP", "DATE")):
        return times.localise("time", "UTC" if "WITH TIME ZONE" in kinds["time"] else dataset.timezone)
    return times.to_utc(layout.time_formats, dataset.timezone)


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
    """Return a column's cells as text: whole numbers without decimals, and none for NaN."""
    if not duckdb_type.startswith(("FLOAT", "DOUBLE", "DECIMAL")):
        return f"{column}::varchar"
    number = f"{column}::double"
    whole = f"if({number} = trunc({number}), {number}::hugeint::varchar, {column}::varchar)"
    return f"case when isfinite({number}) then {whole} end"


def _id_conditions(dataset: Dataset, header: Sequence[str]) -> dict[str, str]:
    """Return the conditions that ids stand for missing ones, or are the names of their columns.

    Args:
        header: the names of the columns of the user and the item; none without a header.
    """
    missing = f"({', '.join(map(_quote, dataset.missing_ids))})" if dataset.missing_ids else "(null)"
    conditions = {f"no_{role}": f"coalesce({role}_id in {missing}, false)" for role in ("user", "item")}
    names = f"({', '.join(map(_quote, header))})"
    conditions["is_header"] = f"coalesce(user_id in {names} and item_id in {names}, false)" if header else "false"
    # Ids of digits, the common case, are spared the comparison.
    least = _quote(min(filter(None, (*dataset.missing_ids, *header)), default="\U0010ffff"))
    any_is_named = " or ".join(f"({condition})" for condition in conditions.values())
    is_doubtful = f"(user_id >= {least} or item_id >= {least})"
    return {**conditions, "named": f"case when {is_doubtful} then {any_is_named} else false end"}


def _kind_conditions(dataset: Dataset) -> dict[str, str]:
    """Return the condition that the data set's file does not name an event's kind, and the reason to reject it."""
    if not dataset.events:
        return {"unknown_kind": "false", "kind_reason": "null"}
    return {
        "unknown_kind": f"coalesce(event not in ({', '.join(map(_quote, dataset.events))}), true)",
        "kind_reason": "if(coalesce(event, '') = '', 'names no kind of event', "
        "'unknown kind of event ' || left(event, 100))",
    }


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
