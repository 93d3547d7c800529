"""A check is made again where something that it depends on has changed, and its results are recorded either way."""

import importlib

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.stores import contract_cache, warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import query_rows

BOUNDS = {"value_min": 1, "value_max": 5, "max_reject_share": 0.1}
EVENT = "('u1', 'i1', 5, '2026-01-01', 1, 1, null)"
FIT = "insert into operations.model_fits values ('{}', 'leave_one_out', 'slim', 'abc', 1, 2, {})"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))


@pytest.fixture
def checked(monkeypatch):
    """The tables that Great Expectations has validated."""
    checks = importlib.import_module("oneclass.data_contracts.checks")
    tables, run = [], checks._run_checkpoint

    def noted(session, contracts, values):
        tables.extend(contract.table for contract in contracts)
        return run(session, contracts, values)

    monkeypatch.setattr(checks, "_run_checkpoint", noted)
    return tables


def ingest_log(home, run_id, *statements, **changes):
    with warehouse.run_stage(home, run_id, "ingest", BOUNDS | changes) as connection:
        for statement in statements:
            connection.execute(statement)


def load_results(home, run_id):
    query = "select * exclude run_id from operations.contract_results where run_id = ? order by all"
    return query_rows(home, query, run_id)


@pytest.fixture
def filled(home, checked):
    log = "insert into operations.log_files values (1, 'a', 'd', 1, 1, 0, current_timestamp::timestamp, null)"
    ingest_log(home, "first", log, f"insert into raw.events values {EVENT}")
    assert {"raw.events", "operations.log_files"} <= set(checked)
    checked.clear()
    return home


def test_results_on_the_same_rows_are_taken_and_recorded(filled, checked):
    ingest_log(filled, "second")
    assert checked == [] and load_results(filled, "second") == load_results(filled, "first") != []


def test_a_contract_is_checked_again_where_rows_values_or_libraries_changed(filled, checked, monkeypatch):
    ingest_log(filled, "second", value_max=6)
    assert "raw.events" in checked
    checked.clear()
    ingest_log(filled, "third", "update raw.events set value = 4")
    assert checked == ["raw.events"]  # the others name no value
    checked.clear()
    monkeypatch.setattr(contract_cache.checksums, "library_version", lambda name: "another")
    ingest_log(filled, "fourth")
    assert {"raw.events", "operations.log_files"} <= set(checked)


def test_large_tables_are_checked_each_time(filled, checked, monkeypatch):
    monkeypatch.setattr(contract_cache, "MAX_ROWS", 1)
    ingest_log(filled, "second")
    assert "raw.events" in checked and "raw.places" not in checked


def test_rows_that_were_damaged_by_hand_break_the_contract(filled):
    with warehouse.open_warehouse(filled) as connection:
        connection.execute("update raw.events set value = 7")
    with pytest.raises(ContractBroken, match="value_in_range"):
        ingest_log(filled, "second")
    with pytest.raises(ContractBroken, match="value_in_range"):
        ingest_log(filled, "third")


def test_what_the_clock_decides_is_taken_only_if_it_held(filled, checked):
    ingest_log(filled, "second", "update raw.events set occurred_at = now()::timestamp + interval 2 days")
    assert "times_plausible" in {rule for _, _, rule, _, success, *_ in load_results(filled, "second") if not success}
    checked.clear()
    ingest_log(filled, "third")
    assert "raw.events" in checked


def test_rows_of_a_run_are_compared_without_its_name(home, checked):
    def train(run_id, saved_bytes):
        with warehouse.run_stage(home, run_id, "train") as connection:
            connection.execute(FIT.format(run_id, saved_bytes))

    train("first", 9)
    assert "operations.model_fits" in checked
    checked.clear()
    train("second", 9)
    assert checked == []
    train("third", 8)
    assert checked == ["operations.model_fits"]


def test_few_checks_of_a_contract_are_stored(filled, monkeypatch):
    monkeypatch.setattr(contract_cache, "MAX_STORED", 2)
    for value in range(4):
        ingest_log(filled, f"run {value}", f"update raw.events set line_number = {value + 2}, value = 1 + {value} / 10")
    with warehouse.open_warehouse(filled, read_only=True) as connection:
        query = "select count(*) from operations.stage_results where stage = 'contract of raw.events'"
        assert connection.execute(query).fetchone() == (2,)
