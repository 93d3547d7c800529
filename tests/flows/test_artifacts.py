"""What a run shows in Prefect, on a real server; and runs without a server."""

import json
import shutil
from uuid import UUID

import httpx
import pytest
from prefect import flow
from prefect.client.base import PrefectHttpxSyncClient
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)

from oneclass.flows import commands
from oneclass.tasks.orchestration import artifacts
from oneclass.tasks.protocols import PROTOCOLS, find_deciding_protocol
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.flows.conftest import FAST

pytestmark = pytest.mark.slow


def list_artifacts(key):
    with get_client(sync_client=True) as client:
        return client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))


def latest_run(home):
    return query_rows(home, "select max_by(run_id, started_at) from operations.runs")[0][0]


@pytest.fixture(scope="module")
def two_runs(first, ratings, tmp_path_factory):
    """The same data set twice, the second time with another penalty."""
    home = shutil.copytree(first[0], tmp_path_factory.mktemp("two") / "home", symlinks=True)
    settings = ["mrf_dense.l2=900", "notify.report_url=http://reports.example/{dataset}/"]
    assert commands.main("backfill", [*FAST, "--home", str(home), "--set", *settings, "--source", str(ratings)]) == 0
    return Home(home, "ml-latest-small")


def test_the_summary_says_what_is_published_by_the_protocol_that_decided(two_runs, first):
    """A browser follows no link from the UI to a file of this machine; so a path is a path, and an address a link."""
    ids = query_rows(two_runs, "select run_id from operations.runs order by started_at")
    by_run = {artifact.flow_run_id: artifact.data for artifact in list_artifacts("ml-latest-small-summary")}
    one, two = [by_run[UUID(run_id)] for (run_id,) in ids]
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        deciding = PROTOCOLS[find_deciding_protocol(connection, latest_run(two_runs))].title.lower()
    assert one.startswith("# ml-latest-small: Published: mrf_dense, +") and f"popularity ({deciding})" in one
    assert "1 new file with 1,680 events; in all 847 likes of 120 users for 40 items." in one
    assert "0 new files with 0 events" in two
    assert f"- Report: {Home(first[0], 'ml-latest-small').report.resolve() / 'index.html'}" in one
    assert "- Report: http://reports.example/ml-latest-small/" in two


def test_a_run_shows_its_contracts_in_one_table_and_its_summary_last(two_runs):
    run_id = latest_run(two_runs)
    (table,) = [one for one in list_artifacts("ml-latest-small-contracts") if one.flow_run_id == UUID(run_id)]
    query = "select distinct stage, contract, rule, success from operations.contract_results where run_id = ?"
    checked = query_rows(two_runs, query, run_id)
    rows = json.loads(table.data)
    assert {(row["stage"], row["table"]) for row in rows} == {(stage, contract) for stage, contract, *_ in checked}
    broken = [row for row in rows if row["what does not hold"]]
    assert rows[: len(broken)] == broken
    assert {row["table"] for row in broken} == {contract for _, contract, _, success in checked if not success}
    with get_client(sync_client=True) as client:  # its summary is its newest artifact
        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(run_id)]))
        body = {"artifacts": wanted.model_dump(mode="json"), "sort": "CREATED_DESC", "limit": 200}
        keys = [artifact["key"] for artifact in client.request("POST", "/artifacts/filter", json=body).json()]
    assert keys == ["ml-latest-small-summary", "ml-latest-small-contracts"]


def test_a_server_that_is_away_ends_no_run_and_outside_of_a_run_it_is_not_asked(two_runs, caplog, monkeypatch):
    send = PrefectHttpxSyncClient.send

    def refused(client, request, *args, **kwargs):
        if "artifacts" in request.url.path:
            raise httpx.ConnectError("connection refused")
        return send(client, request, *args, **kwargs)

    monkeypatch.setattr(PrefectHttpxSyncClient, "send", refused)
    run_id = latest_run(two_runs)

    def show():
        artifacts.publish_contract_results(two_runs, run_id)
        artifacts.publish_summary("small", "text")

    show()
    assert not caplog.records
    flow(show)()
    messages = [record.getMessage() for record in caplog.records if record.name == artifacts.logger.name]
    names = ["contract results", "summary"]
    assert messages == [f"{name} cannot be shown in Prefect: connection refused" for name in names]
