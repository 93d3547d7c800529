"""Stages check contracts where rows, rules or values changed, and record all results of every run."""

import pytest

from oneclass.data_contracts import ContractBroken, checks, contracts
from oneclass.tasks.stores import stages, warehouse
from tests.conftest import query_rows

VALUES = {"value_min": 1, "value_max": 5, "max_reject_share": 0.5}
RESULTS = """select stage, contract, rule, severity, success, observed, samples from operations.contract_results
    where run_id = '{}' order by all"""


@pytest.fixture
def checked(home, log_events, monkeypatch):
    """Checks the contracts of `ingest` for a run, and returns the tables that were checked, none of them empty."""
    log_events([(f"u{user}", f"i{item}", value) for user in range(9) for item, value in ((1, 5), (2, 1))])
    tables = []
    validate = checks._Validator.validate

    def noted(self, contract, values):
        tables.append(contract.table)
        return validate(self, contract, values)

    monkeypatch.setattr(checks._Validator, "validate", noted)

    def check_for(run_id, **values):
        tables.clear()
        with stages.run_stage(home, run_id, "ingest", VALUES | values):
            pass
        return list(tables)

    return check_for


def test_results_on_the_same_rows_are_recorded_and_nothing_is_checked(home, checked):
    assert {"raw.events", "operations.log_files"} <= set(checked("r1"))
    assert checked("r2") == []
    first, second = (query_rows(home, RESULTS.format(run_id)) for run_id in ("r1", "r2"))
    assert first == second and len(first) == sum(1 + len(one.rules) for one in contracts.for_stage("ingest"))


def test_a_row_that_was_changed_by_hand_is_found(home, checked):
    checked("r1")
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update raw.events set value = 99 where user_id = 'u3'")
    with pytest.raises(ContractBroken, match="u3"):
        checked("r2")
    with pytest.raises(ContractBroken, match="u3"):  # a broken rule is checked again
        checked("r3")


def test_other_values_of_a_rule_are_another_check(checked):
    checked("r1")
    assert checked("r2", value_max=6) == ["raw.events"]


def test_a_warning_stays_while_its_rows_do(home, checked, monkeypatch):
    (rejects,) = (one for one in contracts.load() if one.table == "raw.rejects")
    rules = [rule.model_copy(update={"severity": "warning"}) for rule in rejects.rules]
    monkeypatch.setattr(contracts, "load", lambda: (rejects.model_copy(update={"rules": rules}),))
    with warehouse.open_warehouse(home) as connection:
        connection.execute("insert into raw.rejects select 7, i, 'line', 'reason' from range(100) as r(i)")
    assert checked("r1") == ["raw.rejects"] and checked("r2") == []
    first, second = (query_rows(home, RESULTS.format(run_id)) for run_id in ("r1", "r2"))
    assert first == second and not all(success for *_, success, _, _ in first)


def test_a_warning_that_time_may_end_is_checked_again(home, checked):
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update raw.events set occurred_at = '2031-01-01' where user_id = 'u3'")
    assert "raw.events" in checked("r1") and checked("r2") == ["raw.events"]
