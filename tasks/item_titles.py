"""Read the titles of items from a table that comes with a data set."""

from pathlib import Path

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.tables import ID_COLUMNS, find_column, normalize_id, read_table

TITLE_COLUMNS = ("title", "name", "item_name", "movie_title")


def read_titles(path: Path, dataset: Dataset) -> dict[str, str]:
    """Return a dictionary of item id to title.

    Columns are found by the names under `[titles]` in the data set's file, else by usual names, in any case.
    MovieLens' `movies.dat` has lines `id::title::genres` without a header.

    Raises:
        InputError: the file is unreadable, or lacks a column of ids or titles.
    """
    item_columns = ID_COLUMNS["item"]
    table = read_table(path, "titles", dataset.encoding, (item_columns[0], TITLE_COLUMNS[0]))
    declared = dataset.titles
    accepted = {
        "item": (declared.item,) if declared.item else (*dataset.columns.item, *item_columns),
        "title": (declared.title,) if declared.title else TITLE_COLUMNS,
    }
    item, title = (
        find_column(
            path,
            "titles",
            table.names,
            names,
            f"Name the {role}'s column in the data set's file, datasets/{dataset.name}.toml in the home:\n\n"
            f'[titles]\n{role} = "COLUMN"',
        )
        for role, names in accepted.items()
    )
    filled = (row for row in table.rows if len(row) > max(item, title) and row[title] not in (None, ""))
    return {normalize_id(row[item]): str(row[title]) for row in filled}
