"""The format of `published.duckdb`: one that readers with an earlier DuckDB know."""

import duckdb

from oneclass.tasks.stores.publications import DATABASE_FILE


def test_the_published_tables_are_readable_from_duckdb_1_2_on(by_model):
    home, _ = by_model
    with duckdb.connect(str(home.published / DATABASE_FILE), read_only=True) as connection:
        (tags,) = connection.execute("select tags from duckdb_databases() where not internal").fetchone()
        assert tags == {"storage_version": "v1.2.0+"}
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    assert {"recommendations", "metrics", "histories"} <= set(tables)
