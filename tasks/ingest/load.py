"""Load logs into `raw.events`, `raw.places` and `raw.rejects`: DuckDB parses, one statement finds the events."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import files, times
from oneclass.tasks.ingest.columns import BLANKS, ID_NAMES
from oneclass.tasks.ingest.landing import FileRefused, refuse_unreadable
from oneclass.tasks.ingest.layouts import Layout, as_text
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores.home import escape_path
from oneclass.tasks.stores.warehouse import fetch_row

MAX_ID_BYTES = 10_000  # longer ids are damage, and would cost memory in every table
LINE_BYTES, READ_BUFFER_BYTES, MAX_LINE_BYTES = 2_000_000, 32_000_000, 1 << 26
"""DuckDB's defaults for the longest line and its buffer; both are raised for a log with longer lines, up to a bound."""


def load_logs(
    connection: duckdb.DuckDBPyConnection,
    logs: Iterable[tuple[int, LogFile]],
    scratch: Path,
    dataset: Dataset,
    limit: int | None = None,
) -> None:
    """Load logs into `raw.events`, `raw.places` and `raw.rejects`, inside the connection's open transaction.

    Args:
        logs: (file_id, log) of each.
        scratch: an empty folder for copies.
        limit: records to read of each log; all by default.

    Raises:
        FileRefused, FileStillChanging: a log cannot be read, or changed after it was scanned.
    """
    for file_id, log in logs:
        copy = scratch / f"{file_id}.txt"
        with refuse_unreadable(log.location):
            _load_log(connection, file_id, log, _prepare_text(log, copy), dataset, limit)
        copy.unlink(missing_ok=True)
        if files.sign_file(log.location) != log.signature:
            raise files.FileStillChanging(log.location)


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
    is_split = layout.form in ("delimited", "netflix")
    values = _choose_conditions(log, layout, dataset) | {"file_id": file_id}
    parsed = _parse(log, layout, path, dataset, limit, with_line=False)
    (events,) = fetch_row(connection, sql.statement("ingest/events", parsed=parsed), values)
    if layout.form.endswith("adjacency"):
        connection.execute(sql.statement("ingest/places", parsed=parsed), values)
    # A log of a record a line, all of them events, needs no second look.
    if not is_split or events != _count_records(connection, file_id, log, events):
        parsed = _parse(log, layout, path, dataset, limit, with_line=True)
        connection.execute(sql.statement("ingest/rejects", parsed=parsed), values)
    if is_split:
        torn = "select min(line) from ingest_errors where error_type = 'UNQUOTED VALUE'"
        if line := fetch_row(connection, torn)[0]:  # DuckDB may begin a record within it, or far below
            raise FileRefused(log.location, f"{log.path}, line {line}: its quotes do not pair. Mend the line.")
        broken = sql.statement("ingest/broken_lines", file_id=str(file_id), fields=str(layout.fields))
        connection.execute(f"{broken}; drop table ingest_errors; drop table ingest_scans")
    if layout.form == "delimited" and layout.names:
        _check_headers(connection, file_id, log, layout, dataset)


def _count_records(connection: duckdb.DuckDBPyConnection, file_id: int, log: LogFile, events: int) -> int:
    """Return the number of lines of a delimited log that are to be events."""
    assert log.text is not None and log.layout is not None
    if log.layout.form != "netflix":
        return log.text.lines - log.layout.skip
    # Films with events have a header each, so that a single line that is no event is one.
    films = "select count(distinct item_id) from raw.events where file_id = ?"
    return log.text.lines - (1 if events == log.text.lines - 1 else fetch_row(connection, films, [file_id])[0])


def _check_headers(
    connection: duckdb.DuckDBPyConnection, file_id: int, log: LogFile, layout: Layout, dataset: Dataset
) -> None:
    """Take a header that is repeated, as where files are put together, for no reject; refuse another header."""
    found = connection.execute(
        "delete from raw.rejects where file_id = ? and reason = 'is a header' returning line_number, line", [file_id]
    ).fetchall()
    marks = dict.fromkeys(map(ord, BLANKS + '"'))
    header = layout.delimiter.join(layout.names).lower().translate(marks)
    for number, line in found:
        names = line.partition(layout.delimiter)[2] if dataset.row_names else line
        if not header.startswith(names.lower().translate(marks)):  # a long line is cut
            raise FileRefused(
                log.location,
                f"{log.path}, line {number}: is another header ({line[:200]}), so two logs are put together here. Give "
                "them as two files.",
            )


def _choose_conditions(log: LogFile, layout: Layout, dataset: Dataset) -> dict[str, Any]:
    """Return the values of `ingest/parse` by which a record is an event."""
    header = set[str]()
    if layout.form == "delimited" and not layout.is_by_form:
        header = {*ID_NAMES, *(name.lower() for name in layout.names if name and not times.NUMBER.fullmatch(name))}
    latest = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=dataset.max_future_days)
    return {
        "blanks": BLANKS,
        "skip": layout.skip,
        "longest_id": MAX_ID_BYTES,
        "low": dataset.value_min,
        "high": dataset.value_max,
        "has_time": "time" in dict(layout.columns) or layout.form == "netflix",
        "latest": latest,
        "future_days": float(dataset.max_future_days),
        "kinds": list(dataset.events),
        "missing": _join(dataset.missing_ids),
        "header": _join(header),
        "least": min(filter(None, (*dataset.missing_ids, *map(str.upper, header))), default="\U0010ffff"),
        "is_quoted": layout.form == "delimited" and layout.is_quoted,
        "is_damaged": log.text is not None and (log.text.has_nul or not log.text.is_utf8),
    }


def _parse(log: LogFile, layout: Layout, path: Path, dataset: Dataset, limit: int | None, *, with_line: bool) -> str:
    """Return the statement with one row per event of a log, maybe with the text of each line, which costs."""
    # A cheap look spares most ids the trimming.
    trims, occurred_at = "true", "null::timestamp"
    if log.text and log.text.is_ascii:
        trims = "ends_with({0}, ' ') or ends_with({0}, chr(9)) or ascii({0}) <= 32" if log.text.has_blank else "false"
    if layout.form == "netflix":
        occurred_at = "try_cast(time as timestamp)"
    elif "time" in dict(layout.columns):
        occurred_at = times.to_utc(layout.time_formats, dataset.timezone)
    return sql.statement(
        "ingest/parse",
        records=_name_columns(log, layout, path, with_line=with_line),
        limit="" if limit is None else f"limit {limit}",
        trims_user=trims.format("user_id"),
        trims_item=trims.format("item_id"),
        number=_as_number(layout.decimal),
        occurred_at=occurred_at,
    )


def _name_columns(log: LogFile, layout: Layout, path: Path, *, with_line: bool) -> str:
    """Return the statement with one row per record of a log, whose columns are called by their roles."""
    longest = max(LINE_BYTES, min(log.text.max_line_bytes + 2, MAX_LINE_BYTES)) if log.text else LINE_BYTES
    buffer = max(READ_BUFFER_BYTES, 2 * longest)
    sizes = {"path": _quote(escape_path(path)), "longest": str(longest), "buffer": str(buffer)}
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
    if layout.form == "json":
        paths = {role: _quote(f'$."{name}"') for role, name in layout.columns}
        roles = {role: f"if(json_valid(line), json_extract_string(line, {one}), null)" for role, one in paths.items()}
        return sql.statement("ingest/json", relation=relation, **_name_roles(roles))
    if layout.form == "parquet":
        line = "to_json(log)::varchar" if with_line else "null::varchar"
        roles = _name_roles({role: as_text(str(name)) for role, name in layout.columns})
        return sql.statement("ingest/parquet", line=line, **sizes, **roles)
    return sql.statement("ingest/adjacency", relation=relation, counted=str(layout.form != "adjacency").lower())


def _name_roles(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the expression of each role, with the time of day added to that of the time."""
    roles = {"value": "'1'", "time": "null::varchar", "event": "null::varchar", **columns}
    if "clock" in roles:
        roles["time"] = times.join_clock(roles["time"], roles.pop("clock"))
    return {**roles, "event": f"trim({roles['event']}, ' ')"} if "event" in columns else roles


def _as_number(decimal: str) -> str:
    """Return the number that the text `value` is; null where it is none."""
    # DuckDB reads 5_0 as 50.
    plain = "if(contains({value}, '_'), null, try_cast({value} as double))"
    signed = r"regexp_replace(trim(value), '^(\d.*)-$', '-\1')"  # as SAP writes it
    if not decimal:
        likes = "case lower(trim(value)) when 'true' then 1 when 'false' then 0 end"
        return f"coalesce({plain.format(value='value')}, {likes}, {plain.format(value=signed)})"
    thousands = "." if decimal == "," else ","
    grouped = f"regexp_full_match({signed}, '-?\\d{{1,3}}([{thousands}]\\d{{3}})+([{decimal}]\\d+)?')"
    number = plain.format(value=f"replace(replace({signed}, '{thousands}', ''), '{decimal}', '.')")
    return f"case when not contains(value, '{thousands}') or {grouped} then {number} end"


def _join(names: Iterable[str]) -> str:
    return "\x1f".join(["", *names, ""])


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
