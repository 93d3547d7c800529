"""The check itself: on the connection of an open transaction, which it leaves as it found it."""

import logging
import re

import duckdb
import pytest
from pydantic import ValidationError

from oneclass.data_contracts import ContractBroken, RuleResult, check, docs, raise_if_broken
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import STAGES, Column, Contract, Rule, load
from oneclass.data_contracts.session import MAX_DEFINITIONS, session
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits


def contract_of(*rules, table="numbers", nullable=True, **more):
    columns = {"number": Column(type="INTEGER", meaning="a number", nullable=nullable)}
    return Contract(table=table, stage="ingest", row="a number", columns=columns, rules=list(rules), **more)


def build_rule(**changes):
    return Rule(
        **{
            "name": "small",
            "type": "unexpected_rows",
            "description": "numbers are below ten",
            "query": "select * from {batch} where number >= 10",
            **changes,
        }
    )


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


def test_rows_not_committed_are_seen_and_can_be_taken_back(file, parameters):
    with duckdb.connect(str(file)) as connection:
        connection.begin()
        connection.execute("insert into raw.rejects values (77, 1, 'x', 'y')")
        found = {result.rule: result for result in check(connection, "ingest", parameters)}
        assert found["file_known"].samples[0]["file_id"] == 77
        with pytest.raises(duckdb.TransactionException):
            connection.begin()  # one is open still
        connection.rollback()
        assert connection.execute("select count(*) from raw.rejects").fetchone() == (0,)


def test_rows_can_be_committed_after_a_check(tmp_path):
    path = str(tmp_path / "one.duckdb")
    with duckdb.connect(path) as connection:
        connection.begin()
        connection.execute("create table numbers as select 1 as number")
        assert only_result(check_contracts(connection, [contract_of(build_rule())], {})).success
        connection.commit()
    with duckdb.connect(path) as connection:
        assert connection.execute("from numbers").fetchall() == [(1,)]


def test_temporary_tables_are_seen(numbers):
    result = only_result(check_contracts(numbers, [contract_of(build_rule())], {}))
    assert (result.success, result.observed, result.samples) == (False, "1 row", [{"number": 30}])


def test_a_check_after_the_connection_of_an_earlier_one_has_closed(tmp_path):
    for name in ("a", "b"):
        with duckdb.connect(str(tmp_path / name)) as connection:
            connection.execute("create table numbers as select 1 as number")
            assert only_result(check_contracts(connection, [contract_of(build_rule())], {})).success


@pytest.mark.parametrize(
    ("kwargs", "success"), [({"min_value": {"$PARAMETER": "least"}}, False), ({"min_value": 1}, True)]
)
def test_an_expectation_takes_the_stage_s_values(numbers, kwargs, success):
    between = build_rule(type="expect_column_values_to_be_between", query=None, kwargs={"column": "number", **kwargs})
    result = only_result(check_contracts(numbers, [contract_of(between)], {"least": 2}))
    assert result.success is success
    assert result.observed == ("0 rows" if success else "1 of 3 rows")
    assert result.samples == ([] if success else [{"number": 1}])


@pytest.mark.parametrize("value", ["it's 10:30 :x", "{batch}", "100 %", "a\\:b"])
def test_text_reaches_queries_as_it_is(numbers, value):
    numbers.execute("create or replace temp table numbers as select 1 as number, ? as word", [value])
    contract = contract_of(build_rule(query="select * from {batch} where word = {word}"), only="word = {word}")
    contract.columns["word"] = Column(type="VARCHAR", meaning="a word", nullable=True)
    assert only_result(check_contracts(numbers, [contract], {"word": value})).observed == "1 row"


def test_only_the_rows_that_the_contract_speaks_of_are_checked(numbers):
    assert only_result(check_contracts(numbers, [contract_of(build_rule(), only="number < 20")], {})).success


@pytest.mark.parametrize(
    ("may_be_empty", "number", "success"),
    [(True, 9, True), ("not {asked}", 9, True), ("{asked}", 9, False), (False, 9, False), (True, 1, False)],
)
def test_a_table_that_may_be_empty_is_not_asked_without_rows(numbers, may_be_empty, number, success):
    broken_by_none = build_rule(query="select 'no row' as number where (select count(*) from {batch}) < 2")
    contract = contract_of(broken_by_none, only=f"number = {number}", may_be_empty=may_be_empty)
    assert only_result(check_contracts(numbers, [contract], {"asked": False})).success is success


def test_columns_in_another_order_are_reported_of_an_empty_table_too(empty):
    empty.execute("create temp table numbers (word varchar, number integer)")
    contract = contract_of(build_rule(), may_be_empty=True)
    contract.columns["word"] = Column(type="VARCHAR", meaning="a word", nullable=True)
    assert not check_contracts(empty, [contract], {})[0].success


@pytest.mark.parametrize("contract", [one for one in load() if one.may_be_empty], ids=lambda one: one.table)
def test_a_table_that_may_be_empty_has_the_same_results_if_its_rules_are_checked(good, parameters, contract):
    """With all that a stage may be asked for, when some tables must have rows, and with nothing of it."""
    asked = contract.model_copy(update={"may_be_empty": False})
    nothing = {name: False if value is True else value for name, value in parameters.items()}
    good.execute(f"delete from {contract.table}")
    assert check_contracts(good, [contract], parameters) == check_contracts(good, [asked], parameters)
    if contract.table in ("raw.attributes", "indexed.new_items"):  # that they agree with
        good.execute("delete from raw.attributes; delete from operations.attribute_tables")
    assert all(result.success for result in check_contracts(good, [asked], nothing))
    unasked = contract.model_copy(update={"rules": [build_rule(query="select 1 as number")]})
    assert only_result(check_contracts(good, [unasked], nothing)).success


def test_two_rules_of_one_type_are_both_checked(numbers):
    results = check_contracts(
        numbers, [contract_of(build_rule(), build_rule(name="odd", query="from {batch} where number = 2"))], {}
    )
    assert [(result.rule, result.success) for result in results[1:]] == [("small", False), ("odd", False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "expect_colum_values_to_be_unique", "query": None, "kwargs": {"column": "number"}},
        {"type": "expect_column_values_to_be_unique", "query": None, "kwargs": {"colum": "number"}},
    ],
)
def test_a_misspelt_expectation_raises_and_is_named(numbers, changes):
    with pytest.raises(ValueError, match=r"data_contracts/numbers.yaml: rule small"):
        check_contracts(numbers, [contract_of(build_rule(**changes))], {})


def test_a_value_that_the_stage_did_not_give_is_named(empty):
    with pytest.raises(ValueError, match="raw.events.yaml.*value_min"):
        check(empty, "ingest", {"run_id": "run", "value_max": 5, "max_reject_share": 0})


def test_where_the_columns_are_not_as_declared_the_rules_are_left_out(numbers):
    (result,) = check_contracts(numbers, [contract_of(build_rule(), nullable=False)], {})
    assert result.samples == [{"column_name": "number", "declared": "INTEGER not null", "found": "INTEGER"}]


def test_a_query_that_fails_is_a_broken_rule_and_says_why(numbers):
    for table in ("wrong_numbers", "last_numbers"):
        numbers.execute(f"create temp table {table} as from numbers")
    wrong = build_rule(name="wrong", query="select no_such_column from {batch}", severity="warning")
    of_another_type = build_rule(
        name="few", type="expect_table_row_count_to_be_between", kwargs={"max_value": 2}, query=None
    )
    contracts = [
        contract_of(build_rule(), of_another_type),
        contract_of(of_another_type, wrong, table="wrong_numbers"),
        contract_of(build_rule(name="last"), table="last_numbers"),
    ]
    results = check_contracts(numbers, contracts, {})
    assert [result.rule for result in results] == ["columns", "small", "few", "wrong"]
    assert (results[1].success, results[1].observed) == (False, None)  # nothing can be asked after a failure
    assert results[-1].observed.startswith("could not be checked") and "no_such_column" in results[-1].observed
    with pytest.raises(ContractBroken, match="no_such_column"):
        raise_if_broken("ingest", results)


def test_conditions_are_each_counted_and_shown(numbers):
    rules = [
        build_rule(query=None, where="number >= 10"),
        build_rule(name="few", query=None, where="number < 3 or number is null"),
    ]
    small, few = check_contracts(numbers, [contract_of(*rules, build_rule(name="query", query="from {batch}"))], {})[
        1:3
    ]
    assert (small.rule, small.observed, small.samples) == ("small", "1 row", [{"number": 30}])
    assert (few.rule, few.observed, few.samples) == ("few", "2 rows", [{"number": 1}, {"number": 2}])


def test_a_condition_that_fails_is_a_broken_rule_and_says_why(numbers):
    rules = [
        build_rule(query=None, where="number >= 10"),
        build_rule(name="wrong", query=None, where="no_such_column > 1"),
    ]
    numbers.execute("create temp table other_numbers as from numbers")
    results = check_contracts(numbers, [contract_of(*rules), contract_of(build_rule(), table="other_numbers")], {})
    assert [result.rule for result in results] == ["wrong"] and not results[0].success
    assert results[-1].observed.startswith("could not be checked") and "no_such_column" in results[-1].observed


@pytest.mark.parametrize(
    "changes", [{"where": "number > 1"}, {"query": None}, {"kwargs": {"column": "number"}}, {"type": "expect_x"}]
)
def test_a_rule_is_asked_in_one_way(changes):
    with pytest.raises(ValidationError, match="rule small: either `where` or `query`"):
        build_rule(**changes)


def test_checks_that_overlap_ask_their_own_connections(tmp_path):
    contract = contract_of(build_rule())
    with duckdb.connect() as one, duckdb.connect() as other:
        one.execute("create table numbers as select 1 as number")
        other.execute("create table numbers as select 30 as number")
        with session(one):
            assert not only_result(check_contracts(other, [contract], {})).success
            assert only_result(check_contracts(one, [contract], {})).success


def test_the_message_of_a_breach_names_stage_table_and_rule_and_shows_rows(good, parameters):
    good.execute("insert into raw.events select 'u' || i, 'i1', 9, null, 1, i + 10, null from range(12) as lines(i)")
    results = check(good, "ingest", parameters)
    with pytest.raises(ContractBroken) as error:
        raise_if_broken("ingest", results)
    message = str(error.value)
    assert "ingest: the contract of raw.events is broken: value_in_range: every value lies between" in message
    assert "found: 12 rows" in message
    assert "user_id = 'u0', item_id = 'i1', value = 9.0" in message
    assert message.count("sample: user_id") == 5
    assert "data_contracts/raw.events.yaml" in message and "run again" in message
    assert {result.rule for result in error.value.broken} == {"value_in_range", "events_counted"}


def test_a_warning_does_not_raise():
    results = [
        RuleResult("a.b", "one", "warning", False, "2 rows"),
        RuleResult("a.b", "two", "error", True, None),
    ]
    raise_if_broken("evaluate", results)
    with pytest.raises(ContractBroken, match="one"):
        raise_if_broken("evaluate", [RuleResult("a.b", "one", "error", False, "2 rows")])


def test_a_stage_that_breaks_its_contract_is_taken_back_and_its_results_are_kept(tmp_path, parameters):
    home = Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))
    with pytest.raises(ContractBroken), warehouse.run_stage(home, "run-1", "ingest", parameters) as connection:
        connection.execute("insert into raw.events values ('u1', 'i1', 'nan', null, 1, 1, null)")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert connection.execute("select count(*) from raw.events").fetchone() == (0,)
        kept = connection.execute(
            "select stage, success, observed, samples->>'$[0].value' "
            "from operations.contract_results where rule = 'value_finite'"
        ).fetchall()
    assert kept == [("ingest", False, "1 of 1 rows", "nan")]


def test_a_stage_that_keeps_its_contract_is_committed_with_its_results(tmp_path, parameters):
    home = Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))
    with warehouse.run_stage(home, "run-1", "ingest", parameters) as connection:
        connection.execute(
            "insert into operations.log_files values (1, 'a', 'd', 1, 1, 0, current_timestamp::timestamp, null)"
        )
        connection.execute("insert into raw.events values ('u1', 'i1', 5, null, 1, 1, null)")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert connection.execute("select count(*) from raw.events").fetchone() == (1,)
        assert connection.execute(
            "select bool_and(success), count(*) > 10 from operations.contract_results"
        ).fetchone() == (True, True)


def test_a_check_prints_and_logs_nothing(numbers, capfd, caplog):
    with caplog.at_level(logging.DEBUG):
        check_contracts(numbers, [contract_of(build_rule(query="select no_such_column from {batch}"))], {})
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.name.startswith("great_expectations")] == []


@pytest.mark.slow
def test_data_docs_show_every_contract(good, parameters, tmp_path):
    good.execute("update raw.rejects set file_id = 7, line = '<script>'")
    good.execute("update operations.arrivals set outcome = '<script>' where outcome = 'new'")
    good.execute("update evaluation.metrics set value = 0.75 where value = 0.9")
    good.execute("update evaluation.comparisons set p_value = 1e-6")
    index = docs.build(good, dict.fromkeys(STAGES, parameters), tmp_path / "pages")
    tables = {contract.table for contract in load() if "." in contract.table}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (tmp_path / "pages").glob("*.html")}
    assert set(pages) == {"index", *tables}
    assert all(f'href="{table}.html"' in pages["index"] for table in tables) and index.name == "index.html"
    assert "every value is a finite number" in pages["raw.events"]
    assert not [name for name, page in pages.items() if re.search(r"https?://|<script|<link|@import", page)]
    # A section of each column, with shares; sample rows that break a query, with their values.
    assert len(re.findall('class="ge-section', pages["raw.events"])) == 2 + 7
    assert "100% not null" in pages["raw.events"] and "0% unexpected" in pages["raw.events"]
    assert (
        "&#39;popularity&#39;: 0.8" in pages["evaluation.metrics"] or "'popularity': 0.8" in pages["evaluation.metrics"]
    )
    good.rollback()
    good.begin()
    assert good.execute("select file_id from raw.rejects").fetchone() == (1,)  # nothing was committed


def test_a_configuration_is_built_once_in_a_check_and_anew_after_a_change():
    import great_expectations as gx

    from oneclass.data_contracts.execution_engine import share_configurations

    expectation = gx.expectations.ExpectColumnValuesToNotBeNull(column="number")
    with share_configurations(shared := {}):
        configuration = expectation.configuration
        assert expectation.configuration is configuration
        assert configuration.to_domain_obj() is configuration.to_domain_obj() is not expectation
    with share_configurations(shared):
        assert expectation.configuration is configuration
    expectation.column = configuration.kwargs["column"] = "other"
    assert expectation.configuration.kwargs["column"] == configuration.to_domain_obj().column == "other"


def test_a_session_keeps_the_definitions_that_were_used_last(numbers):
    contracts = [
        contract_of(build_rule(query=f"select * from {{batch}} where number > {n}")) for n in range(MAX_DEFINITIONS + 1)
    ]
    with session(numbers, private=True) as private:

        def definitions(*places):
            chosen = [contracts[place] for place in places]
            return private.checkpoint(chosen, [{} for _ in chosen]).validation_definitions

        kept = definitions(*range(MAX_DEFINITIONS))
        assert definitions(2, 0) == [kept[2], kept[0]]
        assert definitions(0)[0] is kept[0]
        definitions(-1)
        assert len(private.definitions) == len(private.datasource.assets) == MAX_DEFINITIONS
        assert definitions(0)[0] is kept[0]
        assert definitions(1)[0] is not kept[1]
    for n, contract in enumerate(contracts[:40]):
        assert only_result(check_contracts(numbers, [contract], {})).success == (n >= 30)


def test_ids_of_arguments_are_those_of_great_expectations():
    from great_expectations.core.id_dict import IDDict

    from oneclass.data_contracts.execution_engine import share_configurations

    def compute_ids():
        values = [None, "", "None", "a", 1, 1.0, True, ["a"], {"a": 1}]
        return [IDDict(a=one, b=other).to_id() for one in values for other in values]

    assert len(set(compute_ids())) == 81
    expected = compute_ids()
    with share_configurations({}):
        assert compute_ids() == compute_ids() == expected
        assert IDDict(a="a", b="b").to_id(id_ignore_keys={"b"}) == "a=a"
        assert IDDict(a="a").to_id() == "a=a" and IDDict().to_id() == ()
