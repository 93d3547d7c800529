"""Checks in an open transaction: each rule holds on valid rows, and each of its `breaks` breaks it."""

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest
import yaml

from oneclass.data_contracts import ContractBroken, RuleResult, check, checks, contracts, for_stage, raise_if_broken
from oneclass.data_contracts.contracts import STAGES, Column, Contract, Rule, fill_in, load, parse
from oneclass.tasks import diagnose
from oneclass.tasks.binarize import stage as binarize
from oneclass.tasks.evaluate import tables as evaluation
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import stages
from tests.conftest import query_rows
from tests.data_contracts.conftest import STAGE_VALUES, load_contract, write_sql


def contract_of(*rules, table="numbers", nullable=True, **more):
    columns = {"number": Column(type="INTEGER", meaning="a number", nullable=nullable)}
    return Contract(table=table, stage="ingest", row="a number", columns=columns, rules=list(rules), **more)


def build_rule(name="small", **question):
    return Rule(name=name, description="numbers are below ten", **question or {"where": "number >= 10"})


@pytest.fixture
def numbers(empty):
    """A temporary table of 1, 2 and 30, made in the open transaction."""
    empty.execute("create temp table numbers as select unnest([1, 2, 30]) as number")
    return empty


def only_result(results):
    """The result of the one rule beside `columns`."""
    assert results[0].rule == "columns" and results[0].success
    (result,) = results[1:]
    return result


def test_two_rules_of_one_kind_are_both_checked_counted_and_shown(numbers):
    between = {"type": "column_values_to_be_between", "column": "number"}
    rules = [
        build_rule(),
        build_rule("few", where="number < 3 or number is null"),
        build_rule("query", query="from {batch} where number = {odd}"),
        build_rule("low", expect={**between, "max_value": 29}),
        build_rule("high", expect={**between, "min_value": 3}),
        build_rule("there", query="from {batch} where number is null"),
    ]
    results = check(numbers, [contract_of(*rules)], {"odd": 1})
    assert [(result.rule, result.observed, result.samples) for result in results[1:]] == [
        ("small", "1 row", [{"number": 30}]),
        ("few", "2 rows", [{"number": 1}, {"number": 2}]),
        ("query", "1 row", [{"number": 1}]),
        ("low", "1 of 3 rows", [{"number": 30}]),
        ("high", "2 of 3 rows", [{"number": 1}, {"number": 2}]),
        ("there", "0 rows", []),
    ]


@pytest.mark.parametrize("value", ["it's 10:30 :x", "{batch}", "100 %", "a\\:b"])
def test_text_reaches_queries_as_it_is(numbers, value):
    numbers.execute("create or replace temp table numbers as select 1 as number, ? as word", [value])
    contract = contract_of(build_rule(where="word = {word}"), only="word = {word}")
    contract.columns["word"] = Column(type="VARCHAR", meaning="a word", nullable=True)
    assert only_result(check(numbers, [contract], {"word": value})).observed == "1 row"


@pytest.mark.parametrize(
    ("may_be_empty", "number", "success"),
    [(True, 9, True), ("not {asked}", 9, True), ("{asked}", 9, False), (False, 9, False), (True, 1, False)],
)
def test_a_table_that_may_be_empty_is_not_asked_without_rows(numbers, may_be_empty, number, success):
    broken_by_none = build_rule(query="select 'no row' as number where (select count(*) from {batch}) < 2")
    contract = contract_of(broken_by_none, only=f"number = {number}", may_be_empty=may_be_empty)
    assert only_result(check(numbers, [contract], {"asked": False})).success is success


@pytest.mark.parametrize("contract", [one for one in load() if one.may_be_empty], ids=lambda one: one.table)
def test_a_table_that_may_be_empty_has_the_same_results_if_its_rules_are_checked(good, parameters, contract):
    """With all that a stage may be asked for, when some tables must have rows, and with nothing of it."""
    asked = contract.model_copy(update={"may_be_empty": False})
    nothing = {name: False if value is True else value for name, value in parameters.items()}
    good.execute(f"delete from {contract.table}")
    assert check(good, [contract], parameters) == check(good, [asked], parameters)
    if contract.table in ("raw.attributes", "indexed.new_items"):  # that they agree with
        good.execute("delete from raw.attributes; delete from operations.attribute_tables")
    assert all(result.success for result in check(good, [asked], nothing))


@pytest.mark.parametrize("changes", [{"type": "colum_values_to_be_unique"}, {"colum": "number"}])
def test_a_misspelt_expectation_raises_and_is_named(numbers, changes):
    expect = {"type": "column_values_to_be_unique", "column": "number", **changes}
    with pytest.raises(ValueError, match=r"data_contracts/numbers.yaml: rule small"):
        check(numbers, [contract_of(build_rule(expect=expect))], {})


def test_the_bounds_of_a_column_are_rules_which_null_keeps(empty):
    empty.execute("create temp table numbers (share double, side varchar)")
    columns = {
        "share": {"type": "DOUBLE", "least": 0, "most": 1},
        "side": {"type": "VARCHAR", "one_of": ["user", "item"]},
    }
    columns = {name: {"meaning": "any", "nullable": True, **column} for name, column in columns.items()}
    contract = Contract.model_validate({"table": "numbers", "stage": "ingest", "row": "a pair", "columns": columns})
    empty.execute("insert into numbers values (0, 'user'), (1, 'item'), (null, null)")
    assert all(result.success for result in check(empty, [contract], {}))
    empty.execute("insert into numbers values ('nan', 'users'), (1.01, 'user'), (-0.01, 'item'), ('inf', 'item')")
    _, share, side = check(empty, [contract], {})
    assert (share.rule, share.observed) == ("share_in_range", "4 of 7 rows")
    assert side.samples == [{"share": "nan", "side": "users"}]


def test_where_the_columns_are_not_as_declared_the_rules_are_left_out(numbers):
    (result,) = check(numbers, [contract_of(build_rule(), nullable=False)], {})
    assert result.samples == [{"column_name": "number", "declared": "INTEGER not null", "found": "INTEGER"}]
    (result,) = check(numbers, [contract_of(table="absent")], {})
    assert "absent does not exist" in result.observed
    for change in ("add column word varchar", "alter number type float", "rename column number to count"):
        numbers.execute(f"create or replace temp table changed as from numbers; alter table changed {change}")
        assert [one.success for one in check(numbers, [contract_of(build_rule(), table="changed")], {})] == [False]


@pytest.mark.parametrize("wrong", [{"query": "select no_such_column from {batch}"}, {"where": "no_such_column > 1"}])
def test_a_statement_that_fails_is_a_broken_rule_and_says_why(numbers, wrong):
    for table in ("wrong_numbers", "last_numbers"):
        numbers.execute(f"create temp table {table} as from numbers")
    contracts = [
        contract_of(build_rule()),
        contract_of(build_rule("wrong", severity="warning", **wrong), table="wrong_numbers"),
        contract_of(build_rule("last"), table="last_numbers"),
    ]
    results = check(numbers, contracts, {})
    assert [result.rule for result in results] == ["columns", "small", "columns", "wrong"]
    assert (results[1].success, results[1].observed) == (False, "1 row")
    with pytest.raises(ContractBroken, match="could not be checked.*no_such_column"):
        raise_if_broken("ingest", results)


def test_checks_that_overlap_ask_their_own_connections():
    contract = contract_of(build_rule())
    with duckdb.connect() as one, duckdb.connect() as other, ThreadPoolExecutor() as pool:
        one.execute("create table numbers as select 1 as number")
        other.execute("create table numbers as select 30 as number")
        for _ in range(5):
            found = [pool.submit(check, asked, [contract], {}) for asked in (one, other)]
            assert [only_result(check.result()).success for check in found] == [True, False]


def test_a_breach_counts_all_rows_and_its_message_names_table_rule_and_a_row(good, parameters):
    good.execute("insert into raw.events select '', 'i1', 9, null, 1, i + 10, null from range(1000) as lines(i)")
    with pytest.raises(ContractBroken) as error:
        raise_if_broken("ingest", check(good, for_stage("ingest"), parameters))
    assert "raw.events is broken: value_in_range" in str(error.value)
    assert "user_id = '', item_id = 'i1', value = 9.0" in str(error.value)
    found = {result.rule: (result.observed, len(result.samples)) for result in error.value.broken}
    assert found.keys() == {"value_in_range", "user_named", "events_counted"}
    assert (found["value_in_range"], found["user_named"]) == (("1,000 rows", 20), ("1,000 of 1,017 rows", 20))
    raise_if_broken("evaluate", [RuleResult("a.b", "one", "warning", False, "2 rows")])


def test_a_stage_whose_contract_is_broken_is_taken_back_and_its_results_are_kept(home, parameters):
    with pytest.raises(ContractBroken), stages.run_stage(home, "run-1", "ingest", parameters) as connection:
        connection.execute("insert into raw.events values ('u1', 'i1', 'nan', null, 1, 1, null)")
    assert query_rows(home, "from raw.events") == []
    query = "select stage, success, samples->>'$[0].value' from operations.contract_results where rule = 'value_finite'"
    assert query_rows(home, query) == [("ingest", False, "nan")]


@pytest.mark.slow
def test_rows_are_checked_once_under_the_same_rules_and_every_run_has_all_results(home, monkeypatch):
    validate, checked = checks._Validator.validate, []
    noted = lambda *given: checked.append(given[1].table) or validate(*given)
    monkeypatch.setattr(checks._Validator, "validate", noted)

    def find_checked(run_id, change="update evaluation.beyond_accuracy set value = 0.05 where model = 'random_graph'"):
        checked.clear()
        with stages.run_stage(home, run_id, "evaluate", STAGE_VALUES | {"run_id": run_id}) as connection:
            for contract in for_stage("evaluate"):
                rows = fill_in(contract.valid, STAGE_VALUES | {"run_id": run_id})
                connection.execute(rows.replace("{batch}", contract.table))
            connection.execute(f"{change} and run_id = '{run_id}'")
        return list(checked)

    assert len(find_checked("run one")) == len(for_stage("evaluate")) and find_checked("run two") == []
    for _ in range(2):
        with pytest.raises(ContractBroken):
            find_checked("run three", "update evaluation.metrics set users = 0 where true")
        assert checked
    assert find_checked("run four", "update evaluation.metrics set value = 0.7 where value = 0.6")
    query = "select * exclude (run_id) from operations.contract_results where run_id = ? order by all"
    one, two = (query_rows(home, query, run_id) for run_id in ("run one", "run two"))
    assert str(one).replace("run one", "run two") == str(two)
    assert [row[2] for row in one if not row[4]] == ["not_narrower_than_popularity"]
    changed = [contract.model_copy(update={"row": "another"}) for contract in load()]
    monkeypatch.setattr(contracts, "load", lambda: changed)
    assert find_checked("run five")


MINIMAL = {
    "table": "raw.events",
    "stage": "ingest",
    "row": "one line",
    "columns": {"user_id": {"type": "VARCHAR", "meaning": "the user"}},
    "rules": [{"name": "some", "where": "false", "description": "there are rows"}],
}


def with_rule(**changes):
    return yaml.safe_dump({**MINIMAL, "rules": [{**MINIMAL["rules"][0], **changes}]})


def test_every_table_that_a_stage_writes_has_a_contract(empty):
    tables = {
        name for (name,) in empty.execute("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
    }
    kept_by_the_flow = {
        "operations.runs",
        "operations.search_trials",
        "operations.contract_results",
        "operations.stage_results",
        "operations.publications",
        "operations.alarms",
        "operations.schema_version",
    }
    assert tables - kept_by_the_flow == {contract.table for contract in load()} - {"rule_breaches"}


# made beside the stage's own tables: of a run or of a night
WITH_NO_LIST = {"operations.funnel", "diagnostics.list_hits"}
LISTED = {
    "binarize": binarize.TABLES,
    "split": [*(f"indexed.{protocol}" for protocol in PROTOCOLS), "indexed.new_items", "diagnostics.leakage"],
    "diagnose": diagnose.TABLES,
    "evaluate": [f"evaluation.{table}" for table in (*evaluation.PROTOCOL_TABLES, *evaluation.LEAVE_ONE_OUT_TABLES)],
}


@pytest.mark.parametrize("stage", LISTED)
def test_the_tables_that_a_stage_lists_as_its_own_are_those_that_it_has_contracts_for(stage):
    assert sorted(LISTED[stage]) == sorted({contract.table for contract in for_stage(stage)} - WITH_NO_LIST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (yaml.safe_dump({**MINIMAL, "stage": "ingst"}), "stage"),
        (with_rule(sevirity="warning"), "sevirity"),
        (with_rule(query="select 1"), "either `expect`, `where` or `query`"),
        (with_rule(name="columns"), "columns"),
        (yaml.safe_dump({**MINIMAL, "rules": MINIMAL["rules"] * 2}), "some"),
        ("table: [", "here.yaml"),
    ],
)
def test_a_slip_in_a_file_raises_and_names_file_and_key(text, message):
    assert parse(yaml.safe_dump(MINIMAL), "here.yaml").table == "raw.events"
    with pytest.raises(ValueError, match="here.yaml") as error:
        parse(text, "here.yaml")
    assert message in str(error.value)


RULES = [(contract, rule) for contract in load() for rule in contract.rules]


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


def test_few_users_have_large_shares_and_the_largest_is_named(good, parameters):
    """Among many events the large are found in a sample, and counted in all."""
    insert = "insert into raw.events select {}, 'i' || i, 5, null, 1, 1000 + i, null from range({}) as r(i)"
    good.execute(insert.format("'u' || i % 999", 400_000))
    good.execute(insert.format("'-1'", 100_100))
    results = {result.rule: result for result in check(good, [load_contract("raw.events")], parameters)}
    assert results["events_spread"].samples == [{"side": "user", "id": "-1", "events": 100_100, "share": 0.2}]
