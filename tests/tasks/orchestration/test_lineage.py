"""OpenLineage events of the tasks of stages: the fields that the specification requires, and what failures leave."""

import json
import logging
import tomllib
import uuid
from datetime import datetime

import pytest
from pydantic import ValidationError

from oneclass.data_contracts import STAGES
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.orchestration.lineage import LineageSettings, emit_run
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.settings import validate_settings
from oneclass.tasks.stores.home import Home
from tests.typed import indented_blocks, read_page

RUN = str(uuid.uuid4())
FACETS = {"parent": {"run", "job"}, "errorMessage": {"message", "programmingLanguage"}}
GIVEN = {"sources": (), "digests": {"leave_one_out": "0"}, "protocol": "strong_generalization_fold_2"}


def check_event(event):
    """Check the form of a run event, by the fields that the specification requires of it and of its parts."""
    assert {"eventType", "eventTime", "run", "job", "producer", "schemaURL"} <= event.keys()
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert uuid.UUID(event["run"]["runId"]) and ":" in event["producer"] and ":" in event["schemaURL"]
    for named in (event["job"], *event["inputs"], *event["outputs"]):
        assert named["namespace"] and named["name"]
    for name, facet in event["run"]["facets"].items():
        assert {"_producer", "_schemaURL", *FACETS[name]} == facet.keys()


def dataset_names(datasets):
    return {dataset["name"] for dataset in datasets}


def run_stage(name, home, run_id=RUN, *, act=lambda: None):
    """Run the task of a stage of this name outside of Prefect."""

    def stage(home, run_id, sources, digests, protocol):
        act()

    stage.__name__ = name
    stage_task(stage).fn(home, run_id, **GIVEN)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "var", "shop")


@pytest.fixture
def events(tmp_path):
    """Settings that write to a file, and what reads its events."""
    file = tmp_path / "lineage.jsonl"

    def read():
        found = [json.loads(line) for line in file.read_text().splitlines()]
        for event in found:
            check_event(event)
        return found

    return LineageSettings(file=str(file)), read


def test_every_stage_starts_and_completes_within_its_run(home, events):
    settings, read = events
    with emit_run(settings, home, RUN, "nightly-retrain"):
        for stage in STAGES:
            run_stage(stage, home)
    run_stage("ingest", home)  # of another run in this process, say, which emits none
    first, *of_stages, last = read()
    assert [first["job"]["name"], first["run"]["runId"], first["eventType"]] == ["shop.nightly-retrain", RUN, "START"]
    assert last["run"] == first["run"] and last["eventType"] == "COMPLETE"
    assert len(of_stages) == 2 * len(STAGES)
    written = set()
    for stage, start, end in zip(STAGES, of_stages[::2], of_stages[1::2], strict=True):
        assert (start["eventType"], end["eventType"], start["job"]["name"]) == ("START", "COMPLETE", f"shop.{stage}")
        assert start["run"] == end["run"] and start["run"]["runId"] != RUN
        parent = start["run"]["facets"]["parent"]
        assert (parent["run"]["runId"], parent["job"]) == (RUN, first["job"])
        assert dataset_names(start["inputs"]) <= written or stage == "ingest"
        written |= dataset_names(start["outputs"])
    by_job = {event["job"]["name"]: event for event in of_stages}
    assert dataset_names(by_job["shop.ingest"]["inputs"]) == {str(home.landing)}
    assert dataset_names(by_job["shop.train"]["inputs"]) == {
        "indexed.strong_generalization",
        "operations.model_settings",
    }
    assert {"published.recommendations", str(home.published)} <= dataset_names(by_job["shop.publish"]["outputs"])
    assert len({event["run"]["runId"] for event in of_stages}) == len(STAGES)


def test_a_failure_and_an_interruption_are_told_of_without_further_lines(home, events):
    settings, read = events

    def fail():
        raise OneclassError("item P1 is broken\ncustomer C-42, row 7")

    with pytest.raises(OneclassError), emit_run(settings, home, RUN, "backfill"):
        run_stage("binarize", home, act=fail)
    _, _, of_stage, of_run = read()
    for event in (of_stage, of_run):
        assert event["eventType"] == "FAIL"
        assert event["run"]["facets"]["errorMessage"]["message"] == "OneclassError: item P1 is broken"

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), emit_run(settings, home, f"{RUN}-2", "backfill"):
        run_stage("binarize", home, f"{RUN}-2", act=interrupt)
    of_retry = read()[4:]
    assert [event["eventType"] for event in of_retry] == ["START", "START", "ABORT", "ABORT"]
    assert of_retry[0]["run"]["runId"] != RUN


def test_an_address_gets_each_event_with_the_key(home, receiver, monkeypatch):
    monkeypatch.setenv("LINEAGE_KEY", "s3cret")
    with emit_run(LineageSettings(url=receiver.address, api_key_env="LINEAGE_KEY"), home, RUN, "backfill"):
        run_stage("diagnose", home)
    assert [event["eventType"] for event in receiver.bodies] == ["START", "START", "COMPLETE", "COMPLETE"]
    assert [headers["Authorization"] for headers in receiver.headers] == ["Bearer s3cret"] * 4
    for event in receiver.bodies:
        check_event(event)


def test_a_target_that_fails_is_told_of_once_and_the_run_goes_on(home, events, receiver, caplog, monkeypatch):
    settings, read = events
    caplog.set_level(logging.WARNING)
    address, posted, *_ = receiver
    with emit_run(settings.model_copy(update={"url": f"{address}/refused"}), home, RUN, "backfill"):
        run_stage("diagnose", home)
    assert len(posted) == 1 and len(read()) == 4
    [warned] = [record.message for record in caplog.records if "lineage" in record.message]
    assert warned.startswith("lineage.url: an event could not be sent")
    monkeypatch.delenv("LINEAGE_KEY", raising=False)
    with emit_run(LineageSettings(url=address, api_key_env="LINEAGE_KEY"), home, RUN, "backfill"):
        run_stage("diagnose", home)
    assert len(posted) == 1 and "the environment variable LINEAGE_KEY is not set" in caplog.text


def test_the_documented_settings_are_taken():
    [shown] = [block for block in indented_blocks(read_page("docs/how-to/nightly.md")) if block.startswith("[lineage]")]
    assert validate_settings("lineage", tomllib.loads(shown)["lineage"]).api_key_env == "LINEAGE_KEY"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "marquez.example"}, "no address"),
        ({"url": "https://user:s3cret@marquez.example"}, "has a password in it"),
        ({"file": "relative.jsonl"}, "should match pattern"),
        ({"url": "https://marquez.example", "api_key_env": "A", "api_key_block": "b"}, "give one of api_key_env"),
    ],
)
def test_wrong_settings_are_refused_and_not_repeated(given, message):
    with pytest.raises(ValidationError, match=message) as refused:
        LineageSettings(**given)
    assert "s3cret" not in str(refused.value)
    assert validate_settings("lineage", {}) == LineageSettings()
