"""Read the titles of items from a file that comes with a data set."""

import csv
from pathlib import Path

from oneclass.tasks.errors import InputError

ITEM_COLUMNS = ("item_id", "itemid", "movieid", "movie_id", "item", "id")
TITLE_COLUMNS = ("title", "name", "item_name", "movie_title")
DELIMITERS = (",", "\t", ";", "|")


def read_titles(path: Path, item_columns: tuple[str, ...] = (), *, named_by: str = "--titles") -> dict[str, str]:
    """Return a dictionary of item id to title.

    Reads a table whose header names the columns, in any case, or MovieLens' `movies.dat` with lines
    `id::title::genres`.

    Args:
        item_columns: further names of the id column, those of the data set's log.
        named_by: the flag or setting that named the file, for messages.

    Raises:
        InputError: the file is unreadable, or its header has no column of ids or titles.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{named_by} {path}: cannot be read ({error.strerror}).") from error
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        lines = data.decode("latin-1").splitlines()  # the encoding of MovieLens' older files
    if not lines:
        raise InputError(f"{named_by} {path}: is empty.")
    if "::" in lines[0]:
        return {parts[0]: parts[1] for parts in (line.split("::") for line in lines) if len(parts) > 1}
    delimiter = max(DELIMITERS, key=lines[0].count)
    header, *rows = csv.reader(lines, delimiter=delimiter)
    item = _find_column(f"{named_by} {path}", header, (*item_columns, *ITEM_COLUMNS), "of item ids")
    title = _find_column(f"{named_by} {path}", header, TITLE_COLUMNS, "of titles")
    return {row[item]: row[title] for row in rows if len(row) > max(item, title)}


def _find_column(location: str, header: list[str], names: tuple[str, ...], content: str) -> int:
    columns = [name.strip().lower() for name in header]
    for name in names:
        if name.lower() in columns:
            return columns.index(name.lower())
    accepted = ", ".join(dict.fromkeys(name.lower() for name in names))
    raise InputError(
        f"{location}, line 1: no column {content} among {', '.join(header)[:200]}. Name it one of {accepted}."
    )
