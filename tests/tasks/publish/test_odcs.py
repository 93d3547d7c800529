"""A publication's contract of the Open Data Contract Standard against its files."""

import duckdb
import yaml

LOGICAL = {"VARCHAR": "string", "INTEGER": "integer", "BIGINT": "integer", "DOUBLE": "number", "BOOLEAN": "boolean"}


def test_the_contract_describes_each_column_of_each_file(copied):
    folder = copied.published
    contract = yaml.safe_load((folder / "contract.odcs.yaml").read_text(encoding="utf-8"))
    assert contract["kind"] == "DataContract" and contract["apiVersion"].startswith("v3.")
    assert {"id", "version", "status"} <= set(contract)
    tables = {table["physicalName"]: table for table in contract["schema"]}
    assert set(tables) == {path.name for path in folder.glob("*.parquet")}
    for name, table in tables.items():
        rows = duckdb.sql(f"select * from '{folder / name}'")
        [nulls] = rows.aggregate(", ".join(f'count(*) - count("{column}")' for column in rows.columns)).fetchall()
        assert [one["name"] for one in table["properties"]] == rows.columns and table["quality"]
        for column, kind, missing in zip(table["properties"], rows.types, nulls, strict=True):
            assert column["description"] and column["physicalType"]
            logical = column["items"] if str(kind).endswith("[]") else column
            assert logical["logicalType"] == LOGICAL[str(kind).removesuffix("[]")]
            assert (column["logicalType"] == "array") == str(kind).endswith("[]")
            assert not (column["required"] and missing)
