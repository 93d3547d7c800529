"""Copy the published lists to PostgreSQL in one transaction: readers see the old lists or the new, never half of them.

Set the program to run after each publication, and put the database's URL into the environment of the nights:

    [publish]
    after = [".venv/bin/python", "examples/publish_to_postgres.py"]

    SHOP_LISTS=postgresql://USER:PASSWORD@HOST/DATABASE

The tables get the columns of the files, in a schema with the data set's name. It needs the extra `sql`.
"""

import os
import re
from pathlib import Path

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from pyarrow import parquet

TABLES = ("recommendations", "placements", "lists", "exploration")
COLUMNS = "select column_name from information_schema.columns where table_schema = $1 and table_name = $2"


def replace_rows(cursor: dbapi.Cursor, schema: str, table: str, file: Path) -> None:
    """Replace a table's rows by those of a file. Its grants and indexes stay, unless the columns have changed."""
    cursor.execute(f"{COLUMNS} order by ordinal_position", (schema, table))
    columns = [name for (name,) in cursor.fetchall()]
    if columns:
        cursor.execute(f'delete from "{schema}"."{table}"')
    if not file.exists():
        return
    with parquet.ParquetFile(file) as source:
        mode = "append" if columns == source.schema_arrow.names else "create"
        if columns and mode == "create":
            cursor.execute(f'drop table "{schema}"."{table}"')
        rows = pa.RecordBatchReader.from_batches(source.schema_arrow, source.iter_batches())
        cursor.adbc_ingest(table, rows, mode=mode, db_schema_name=schema)
    if mode == "create" and "user_id" in source.schema_arrow.names:
        cursor.execute(f'create index on "{schema}"."{table}" (user_id)')


def main() -> None:
    """Copy every list of the publication that the environment names."""
    folder = Path(os.environ["ONECLASS_PUBLICATION"])
    schema = re.sub(r"\W", "_", os.environ["ONECLASS_DATASET"].lower())
    with dbapi.connect(os.environ["SHOP_LISTS"]) as connection, connection.cursor() as cursor:
        cursor.execute(f'create schema if not exists "{schema}"')
        for table in TABLES:
            replace_rows(cursor, schema, table, folder / f"{table}.parquet")
        connection.commit()


if __name__ == "__main__":
    main()
