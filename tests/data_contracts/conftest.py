"""A small warehouse in which every contract holds, inside the open transaction of a stage."""

import shutil
from functools import cache

import duckdb
import pytest

from oneclass.data_contracts import contracts
from oneclass.data_contracts.contracts import Contract, fill_in, load

STAGE_VALUES = {
    "run_id": "ml-1m 10:02:03",
    "value_min": 1.0,
    "value_max": 5.0,
    "max_reject_share": 0.25,
    "since": None,
    "until": None,
    "min_user_edges": 0,
    "min_item_edges": 0,
    "explicit_negatives": True,
    "scheme": "hashed",
    "seed": 251955,  # one whose hashes make the parts, targets and held-out edges of the valid rows
    "held_out_share": 0.3,
    "held_out_users": None,
    "max_evaluated_users": 50_000,
    "strong_generalization": True,
    "leave_one_out": True,
    "cold_items": True,
    "next_events": True,
    "next_from": "2026-01-01",
    "given": True,
    "top_n": 20,
    "list_length": 3,
    "likes_given": True,
    "like_sd_given": True,
}


@cache
def load_contract(table: str) -> Contract:
    """Return the contract of a table."""
    return next(contract for contract in load() if contract.table == table)


def write_sql(contract: Contract, text: str) -> str:
    """Fill in the table and the stage's values into the SQL of `valid` or `breaks`."""
    return fill_in(text, STAGE_VALUES).replace("{batch}", contract.table)


@pytest.fixture
def parameters():
    """What the stages would give."""
    return dict(STAGE_VALUES)


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """A warehouse with its tables and no rows."""
    path = tmp_path_factory.mktemp("contracts") / "warehouse.duckdb"
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        for statement in contracts.schema():
            connection.execute(statement)
    return path


@pytest.fixture(scope="session")
def filled(file):
    """An open warehouse with the valid rows of every contract, for tests that change it and roll back."""
    path = shutil.copy(file, file.with_name("filled.duckdb"))
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        for contract in load():
            if "." not in contract.table:
                columns = ", ".join(f'"{name}" {column.type}' for name, column in contract.columns.items())
                connection.execute(f"create temp table {contract.table} ({columns})")
            connection.execute(write_sql(contract, contract.valid))
        yield connection


@pytest.fixture
def empty(file):
    """A connection inside an open transaction, all tables empty; rolled back afterwards."""
    with duckdb.connect(str(file), config={"threads": 1}) as connection:
        connection.begin()
        yield connection
        connection.rollback()


@pytest.fixture
def good(filled):
    """A connection inside an open transaction, with the valid rows of every contract; rolled back afterwards."""
    filled.begin()
    yield filled
    filled.rollback()
