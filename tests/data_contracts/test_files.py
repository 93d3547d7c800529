"""The contract files: what they may say, and that they speak of the tables that there are."""

import pytest
import yaml

from oneclass.data_contracts import for_stage
from oneclass.data_contracts.contracts import STAGES, load, parse
from oneclass.tasks import diagnose
from oneclass.tasks.binarize import stage as binarize
from oneclass.tasks.evaluate import tables as evaluation
from oneclass.tasks.protocols import PROTOCOLS

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


def test_files_are_named_after_their_tables():
    from importlib.resources import files

    names = {file.name for file in files("data_contracts").iterdir() if file.name.endswith(".yaml")}
    assert names == {f"{contract.table}.yaml" for contract in load()}


def test_every_stage_is_closed_by_a_contract():
    assert all(for_stage(stage) for stage in STAGES)
    assert for_stage("no such stage") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (yaml.safe_dump({**MINIMAL, "owner": "me"}), "owner"),
        (yaml.safe_dump({**MINIMAL, "stage": "ingst"}), "stage"),
        (with_rule(sevirity="warning"), "sevirity"),
        (with_rule(severity="fatal"), "severity"),
        (with_rule(query="select 1"), "either `expect`, `where` or `query`"),
        (with_rule(where=None), "either `expect`, `where` or `query`"),
        (with_rule(brakes={"user_id": None}), "brakes"),
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


def test_values_come_from_the_stage_or_from_the_defaults():
    contract = parse(
        yaml.safe_dump({**MINIMAL, "only": "value > {least} and value < {most}", "defaults": {"most": 5}}),
        "x",
    )
    assert contract.values({"least": 1}) == {"least": 1, "most": 5}
    assert contract.values({"least": 1, "most": 2})["most"] == 2
    with pytest.raises(ValueError, match="least"):
        contract.values({})
