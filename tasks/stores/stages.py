"""Run stages: one transaction each, committed if the stage's contracts hold, whose results are recorded."""

import contextlib
import json
from collections.abc import Generator, Sequence
from typing import Any

import duckdb
import polars as pl

from oneclass import data_contracts
from oneclass.data_contracts.checks import RuleResult
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home


@contextlib.contextmanager
def run_stage(
    home: Home, run_id: str, name: str, parameters: dict[str, Any] | None = None
) -> Generator[duckdb.DuckDBPyConnection]:
    """Run the stage `name` in one transaction, committed if the stage's contracts hold at the end of the block.

    Every contract result is recorded in `operations.contract_results`, also when a breach rolls the stage back.

    Args:
        parameters: values that the contracts' rules refer to by name; the block may add to them.

    Raises:
        ContractBroken: a rule of severity `error` was broken; the warehouse is unchanged.
    """
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        results = []
        try:
            yield connection
            results = data_contracts.check(connection, name, {"run_id": run_id, **(parameters or {})})
            data_contracts.raise_if_broken(name, results)
            _record_results(connection, run_id, name, results)
            connection.commit()
        except BaseException as error:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            if isinstance(error, data_contracts.ContractBroken):
                _record_results(connection, run_id, name, results)
            raise


def _record_results(
    connection: duckdb.DuckDBPyConnection, run_id: str, stage: str, results: Sequence[RuleResult]
) -> None:
    names = "contract", "rule", "severity", "success", "observed"
    rows = [
        {"run_id": run_id, "stage": stage}
        | {name: getattr(one, name) for name in names}
        | {"samples": json.dumps(one.samples, default=str)}
        for one in results
    ]
    warehouse.insert(connection, "operations.contract_results", pl.DataFrame(rows, infer_schema_length=None))
