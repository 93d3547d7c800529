"""Every rule holds on the valid rows of its contract, and each of its `breaks` breaks it."""

import pytest

from oneclass.data_contracts import check, for_stage
from oneclass.data_contracts.contracts import STAGES, fill_in, load
from tests.data_contracts.conftest import STAGE_VALUES, load_contract, write_sql

RULES = [(contract, rule) for contract in load() for rule in contract.rules]


def find_broken_rules(connection, table, parameters):
    """Results of the rules of a table that do not hold, by rule."""
    results = check(connection, [load_contract(table)], parameters)
    return {result.rule: result for result in results if not result.success}


@pytest.mark.parametrize("stage", STAGES)
def test_valid_rows_keep_every_contract(good, parameters, stage):
    results = check(good, for_stage(stage), parameters)
    assert [result for result in results if not result.success] == []
    assert {(result.contract, result.rule) for result in results} == {
        (contract.table, name)
        for contract in load()
        if contract.stage == stage
        for name in ["columns", *(rule.name for rule in contract.rules)]
    }


def apply_breach(connection, contract, breach):
    """Change the rows as `breaks` says: by SQL, or by other values in the first row that the contract checks."""
    if isinstance(breach, str):
        connection.execute(write_sql(contract, breach))
    elif breach:
        rows = f"from {contract.table} where {fill_in(contract.only or 'true', STAGE_VALUES)}"
        values = ", ".join(f'"{column}" = ?' for column in breach)
        update = f"update {contract.table} set {values} where rowid = (select min(rowid) {rows})"
        connection.execute(update, list(breach.values()))


@pytest.mark.parametrize(("contract", "rule"), RULES, ids=[f"{one.table}-{rule.name}" for one, rule in RULES])
def test_each_breach_breaks_its_rule(filled, contract, rule):
    assert rule.breaches, f"data_contracts/{contract.table}.yaml: {rule.name} has no `breaks`"
    alone = contract.model_copy(update={"rules": [rule]})  # the others would cost most of the time
    for breach in rule.breaches:
        filled.begin()
        apply_breach(filled, contract, breach)
        *_, result = check(filled, [alone], {**STAGE_VALUES, **rule.given})
        filled.rollback()
        assert (result.rule, result.success) == (rule.name, False), breach
        assert (result.severity, result.description) == (rule.severity, rule.description)
        assert result.observed and not result.observed.startswith("could not be checked")
        assert result.samples or rule.name in ("not_empty", "arrays_there")


@pytest.mark.parametrize(
    "change",
    ["drop column occurred_at", "add column device varchar", "alter value type float", "alter value drop not null"],
)
def test_columns_other_than_declared_break_the_contract(good, parameters, change):
    good.execute(f"alter table raw.events {change}")
    assert "raw.events" in {
        result.contract for result in check(good, for_stage("ingest"), parameters) if not result.success
    }


def test_few_users_and_items_have_large_shares_and_the_largest_is_named(good, parameters):
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # each of three users has a third
    insert = "insert into raw.events select {}, 'i' || i, 5, null, 1, 1000 + i, null from range({}) as r(i)"
    good.execute(insert.format("'u' || i % 999", 400_000))
    good.execute(insert.format("'-1'", 100_100))
    [sample] = find_broken_rules(good, "raw.events", parameters)["events_spread"].samples
    assert sample == {"side": "user", "id": "-1", "events": 100_100, "share": 0.2}
    good.execute("delete from raw.events where user_id = '-1' and line_number < 1100")
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # a fifth and no more


def test_a_given_split_that_was_not_asked_for_is_empty(good, parameters):
    not_asked = {**parameters, "given": False}
    assert find_broken_rules(good, "indexed.given", not_asked)["edges_agree"].observed == "16 rows"
    good.execute("delete from indexed.given")
    assert find_broken_rules(good, "indexed.given", not_asked) == {}


def test_the_count_is_of_all_rows_and_the_samples_are_some(good, parameters):
    good.execute("insert into raw.events select '', 'i1', 5, null, 1, i, null from range(1000) as lines(i)")
    result = find_broken_rules(good, "raw.events", parameters)["user_named"]
    assert result.observed == "1,000 of 1,017 rows"
    assert 0 < len(result.samples) < 100
    assert result.samples[0]["item_id"] == "i1"
