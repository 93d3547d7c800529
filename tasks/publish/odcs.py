"""The contract of a publication's Parquet files as a file of the Open Data Contract Standard, version 3."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyarrow import parquet

from oneclass.data_contracts.contracts import Contract, load
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.published_model import LISTS_FILE

CONTRACT_FILE = "contract.odcs.yaml"
API_VERSION = "v3.0.2"
# By file, the table whose contract it has.
FILES = {
    publications.RECOMMENDATIONS_FILE: "published.recommendations",
    publications.PLACEMENTS_FILE: "published.placements",
    publications.EXPLORATION_FILE: "published.exploration",
    LISTS_FILE: "published.lists",
    "evaluation.parquet": "evaluation.metrics",
}
# Columns that only the files have.
FILE_COLUMNS = {
    "title": "the item's title, by the file of `publish.titles`; null without one",
    "because_titles": "the titles of the items in `because`, in their order; null for those without one",
}
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's


def write_contract(folder: Path, dataset: str) -> None:
    """Write the contract of the Parquet files in a publication's folder."""
    contracts = {contract.table: contract for contract in load()}
    document = {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": f"oneclass.{dataset}.published",
        "name": f"Recommendations of {dataset}",
        "version": "1.0.0",
        "status": "active",
        "description": {
            "purpose": "Recommendations for every user, lists for everybody, and the evaluation behind them.",
            "usage": "Files are immutable; the next publication has a folder of its own.",
        },
        "servers": [{"server": "files", "type": "local", "path": "./{model}.parquet", "format": "parquet"}],
        "schema": [
            _describe_table(folder / file, contracts[table])
            for file, table in FILES.items()
            if (folder / file).exists()
        ],
    }
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    (folder / CONTRACT_FILE).write_text(text, encoding="utf-8")


def _describe_table(file: Path, contract: Contract) -> dict[str, Any]:
    return {
        "name": file.stem,
        "physicalName": file.name,
        "physicalType": "file",
        "logicalType": "object",
        "description": f"One row is {contract.row}.",
        "dataGranularityDescription": contract.row,
        # A relative path such as `md:x` would be a service's address.
        "properties": [_describe_column(field, contract) for field in parquet.read_schema(file.absolute())],
        "quality": [
            {"type": "text", "name": rule.name, "description": rule.description, "severity": rule.severity}
            for rule in contract.rules
        ],
    }


def _describe_column(field: pa.Field, contract: Contract) -> dict[str, Any]:
    column = contract.columns.get(field.name)
    return {
        "name": field.name,
        "physicalType": column.type if column else str(field.type),
        "required": column is not None and not column.nullable,
        "description": column.meaning if column else FILE_COLUMNS.get(field.name, ""),
        **_logical_type(field.type),
    }


def _logical_type(kind: pa.DataType) -> dict[str, Any]:
    """Return a type in the standard's words."""
    if pa.types.is_list(kind):
        return {"logicalType": "array", "items": _logical_type(kind.value_type)}
    names = {
        "integer": pa.types.is_integer,
        "number": pa.types.is_floating,
        "boolean": pa.types.is_boolean,
        "date": pa.types.is_temporal,
    }
    return {"logicalType": next((name for name, is_kind in names.items() if is_kind(kind)), "string")}
