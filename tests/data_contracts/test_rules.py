"""Every rule holds on the valid rows of its contract, and each of its `breaks` breaks it."""

import pytest

from oneclass.data_contracts import check
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import STAGES, fill_in, load
from tests.data_contracts.conftest import STAGE_VALUES, load_contract, write_sql

RULES = [(contract, rule) for contract in load() for rule in contract.rules]


def find_broken_rules(connection, table, parameters):
    """Results of the rules of a table that do not hold, by rule."""
    results = check_contracts(connection, [load_contract(table)], parameters)
    return {result.rule: result for result in results if not result.success}


@pytest.mark.parametrize("stage", STAGES)
def test_valid_rows_keep_every_contract(good, parameters, stage):
    results = check(good, stage, parameters)
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
        *_, result = check_contracts(filled, [alone], {**STAGE_VALUES, **rule.given})
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
    assert "raw.events" in {result.contract for result in check(good, "ingest", parameters) if not result.success}


def test_few_users_and_items_have_large_shares_and_the_largest_is_named(good, parameters):
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # each of three users has a third
    insert = "insert into raw.events select {}, 'i' || i, 5, null, 1, 1000 + i, null from range({}) as r(i)"
    good.execute(insert.format("'u' || i % 999", 400_000))
    good.execute(insert.format("'-1'", 100_100))
    [sample] = find_broken_rules(good, "raw.events", parameters)["events_spread"].samples
    assert sample == {"side": "user", "id": "-1", "events": 100_100, "share": 0.2}
    good.execute("delete from raw.events where user_id = '-1' and line_number < 1100")
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # a fifth and no more


def test_bounds_that_a_data_set_does_not_declare_do_not_bind(good, parameters):
    good.execute("update raw.events set value = -700 where line_number = 1")
    assert find_broken_rules(good, "raw.events", {**parameters, "value_min": None}) == {}
    assert "value_in_range" in find_broken_rules(good, "raw.events", parameters)


def test_a_filtered_split_may_leave_out_users_and_items_but_no_edge_between_those_it_keeps(good, parameters):
    table, filtered = "indexed.strong_generalization", {**parameters, "min_item_edges": 2}
    good.execute("delete from indexed.strong_generalization where item_index = 2")
    assert find_broken_rules(good, table, filtered) == {}
    assert set(find_broken_rules(good, table, parameters)) == {"everybody_there"}
    good.execute("delete from indexed.strong_generalization where user_index = 2 and item_index = 1")
    assert find_broken_rules(good, table, filtered)["edges_agree"].samples == [
        {"user_index": 2, "edges": 4, "curated": 5}
    ]
    assert "active_stay" in find_broken_rules(good, table, {**parameters, "min_user_edges": 5})


def test_a_given_split_that_was_not_asked_for_is_empty(good, parameters):
    not_asked = {**parameters, "given": False}
    assert find_broken_rules(good, "indexed.given", not_asked)["edges_agree"].observed == "16 rows"
    good.execute("delete from indexed.given")
    assert find_broken_rules(good, "indexed.given", not_asked) == {}


def test_an_edge_that_comes_again_is_found_again_only_where_seen_items_are(good, parameters):
    edge = "user_index = 0 and item_index = 0"
    good.execute(f"update indexed.interactions set first_at = '2025-12-31', last_at = '2026-01-02' where {edge}")
    cases = ("train", False, set()), ("again", True, set()), ("train", True, {"nothing_later_trains"})
    for role, seen_items, rules in cases:
        good.execute(f"update indexed.next_events set role = '{role}' where {edge}")
        values = {**parameters, "seen_items": seen_items}
        assert find_broken_rules(good, "indexed.next_events", values).keys() == rules


def test_of_more_users_than_the_setting_as_many_have_an_edge_held_out(good, parameters):
    few = {**parameters, "max_evaluated_users": 1}
    assert set(find_broken_rules(good, "indexed.leave_one_out", few)) == {"everybody_tested"}
    good.execute("update indexed.leave_one_out set role = 'train' where user_index > 0")
    assert find_broken_rules(good, "indexed.leave_one_out", few) == {}


def test_recommendations_that_the_run_did_not_make_are_not_held_against_its_edges(good, parameters):
    good.execute("insert into indexed.interactions values (0, 2, 1, null, null, 1, 3, null)")
    assert set(find_broken_rules(good, "published.recommendations", parameters)) == {"nothing_seen", "everybody_served"}
    assert find_broken_rules(good, "published.recommendations", {**parameters, "recommendations_made": False}) == {}


def test_items_of_a_history_are_recommended_only_where_seen_items_are_included(good, parameters):
    parameters = {**parameters, "likes_given": False}
    table, included = "published.recommendations", {**parameters, "seen_items": True}
    assert set(find_broken_rules(good, table, included)) == {"everybody_served"}  # all six items are left to each user
    good.execute(
        "delete from published.recommendations; "
        "insert into published.recommendations (user_id, item_id, rank, score, is_new) "
        "select 'u' || u, 'i' || i, i, -i * i, false from range(1, 4) users(u), range(1, 7) items(i)"
    )
    assert find_broken_rules(good, table, included) == {}
    assert set(find_broken_rules(good, table, parameters)) == {"nothing_seen", "everybody_served"}


def test_under_rules_pinned_items_may_have_lower_scores_and_lists_may_be_short(good, parameters):
    table = "published.recommendations"
    good.execute(f"insert into {table} values ('u1', 'i4', 2, 0.6, 0.4, 0.1, false, ['i1'], null, null)")
    good.execute("delete from indexed.interactions where user_index = 0 and item_index in (3, 4)")
    assert set(find_broken_rules(good, table, parameters)) == {"scores_fall", "everybody_served"}
    assert find_broken_rules(good, table, {**parameters, "has_rules": True, "pinned": ["i3"]}) == {}


def test_the_count_is_of_all_rows_and_the_samples_are_some(good, parameters):
    good.execute("insert into raw.events select '', 'i1', 5, null, 1, i, null from range(1000) as lines(i)")
    result = find_broken_rules(good, "raw.events", parameters)["user_named"]
    assert result.observed == "1,000 of 1,017 rows"
    assert 0 < len(result.samples) < 100
    assert result.samples[0]["item_id"] == "i1"


def test_nothing_is_written_by_a_check(good, parameters):
    def state():
        tables = good.execute("select table_name, estimated_size from duckdb_tables() order by all").fetchall()
        return tables, good.execute("from raw.events order by all").fetchall()

    before = state()
    for stage in STAGES:
        check(good, stage, parameters)
    assert state() == before
