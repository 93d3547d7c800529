"""What a run shows in Prefect, on a real server; and runs without a server."""

import json
import logging
import math
import re
import shutil
import sys
import time
from uuid import UUID

import httpx
import pytest
from prefect import flow
from prefect.client.base import PrefectHttpxSyncClient
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.flow_engine import run_flow

from oneclass.flows import commands
from oneclass.flows.pipeline import backfill as backfill_flow
from oneclass.flows.pipeline import nightly_retrain
from oneclass.models.registry import MODELS
from oneclass.tasks import train
from oneclass.tasks.errors import InputError
from oneclass.tasks.leaderboard import WEAK_MARK, LeaderboardRow
from oneclass.tasks.orchestration import artifacts
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import fits, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.flows.conftest import FAST

pytestmark = pytest.mark.slow

ROWS = [LeaderboardRow("given", "popularity", "score", 3, {"ndcg@20": (0.1, 0.01)}, "best")]


def list_artifacts(key):
    """Artifacts of that key, oldest first."""
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return sorted(found, key=lambda artifact: artifact.created)


def load_summaries(home):
    """The summaries of a home's runs, oldest first."""
    ids = query_rows(home, "select run_id from operations.runs order by started_at")
    by_run = {artifact.flow_run_id: artifact.data for artifact in list_artifacts("ml-latest-small-summary")}
    return [by_run[UUID(run_id)] for (run_id,) in ids]


@pytest.fixture(scope="module")
def two_runs(first, ratings, tmp_path_factory):
    """The same data set twice, the second time with another penalty."""
    home = shutil.copytree(first[0], tmp_path_factory.mktemp("two") / "home", symlinks=True)
    settings = ["mrf_dense.l2=900", "notify.report_url=http://reports.example/{dataset}/"]
    assert commands.main("backfill", [*FAST, "--home", str(home), "--set", *settings, "--source", str(ratings)]) == 0
    return Home(home, "ml-latest-small")


def test_the_summary_says_what_changed_since_the_last_run(two_runs):
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        values = connection.execute(
            "select value, standard_error from evaluation.metrics join operations.runs using (run_id) where model = "
            "'mrf_dense' and metric = 'ndcg@100' and protocol = 'strong_generalization' order by started_at"
        ).fetchall()
    first, second = load_summaries(two_runs)
    assert "This is the first run of this data set that was evaluated." in first
    assert "models.mrf_dense.l2: 6.0 before, 900.0 now" in second
    assert "rules of contracts checked" in second
    ((before, error_before), (now, error_now)) = values
    line = f"| strong_generalization | mrf_dense/score | ndcg@100 | {before:.4f} | {now:.4f} "
    assert f"{line}| {now - before:+.4f} ± {math.hypot(error_before, error_now):.4f} |" in second
    popularity = next(line for line in second.splitlines() if "| popularity/score | ndcg@100 |" in line)
    assert popularity.endswith("| +0.0000 |  |")
    assert "120 users" in second and "1,680 events" in second and "in all 1 file, " in second


def test_the_summary_says_where_the_pages_are_and_links_to_what_is_served(two_runs, first):
    """A browser follows no link from the UI to a file of this machine; so a path is a path, and an address a link."""
    one, two = load_summaries(two_runs)
    report = Home(first[0], "ml-latest-small").report.resolve() / "index.html"
    assert f"Report: `{report}`" in one and "](file:" not in one + two
    assert [artifact.data for artifact in list_artifacts("ml-latest-small-report")] == [
        "[Report on ml-latest-small](http://reports.example/ml-latest-small/)"
    ]


def latest_run(home):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute("select max_by(run_id, started_at) from operations.runs").fetchone()[0]


def test_each_stage_shows_its_contracts_in_one_artifact_with_a_row_per_model(two_runs):
    run_id = latest_run(two_runs)
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(
            key=ArtifactFilterKey(like_="ml-latest-small-contracts-%"),
            flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(run_id)]),
        )
        found = {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=wanted, limit=200)}
        assert len(client.read_artifacts(artifact_filter=wanted, limit=200)) == len(found)
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        query = "select distinct stage, contract, rule, success from operations.contract_results where run_id = ?"
        checked = connection.execute(query, [run_id]).fetchall()
    stages = {stage for stage, *_ in checked}
    assert set(found) == {f"ml-latest-small-contracts-{stage}" for stage in stages}
    trained = json.loads(found["ml-latest-small-contracts-train"].data)
    # the other fits are those of the run before, recorded together
    tasks = {"take stored fits", *(f"train mrf_dense on {name}" for name in ("strong_generalization", "leave_one_out"))}
    contracts = {contract for stage, contract, *_ in checked if stage == "train"}
    pairs = {(row["task"], row["table"]) for row in trained}
    assert len(pairs) == len(trained) and pairs >= {(task, contract) for task in tasks for contract in contracts}
    assert all(row["holds"] == "yes" and not row["what does not hold"] for row in trained)
    assert f"`train`: all {len(trained)} contracts hold" in found["ml-latest-small-contracts-train"].description
    evaluated = json.loads(found["ml-latest-small-contracts-evaluate"].data)
    broken = [row for row in evaluated if row["holds"] == "NO"]
    assert evaluated[: len(broken)] == broken
    assert all(len(row["what does not hold"].split()) > 5 and row["rules"][0] != "0" for row in broken)


def test_a_run_s_newest_artifact_is_its_summary(two_runs):
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(latest_run(two_runs))]))
        body = {"artifacts": wanted.model_dump(mode="json"), "sort": "CREATED_DESC", "limit": 200}
        keys = [artifact["key"] for artifact in client.request("POST", "/artifacts/filter", json=body).json()]
    assert keys[:2] == ["ml-latest-small-summary", "ml-latest-small-report"]


def test_runs_have_names_of_their_own_and_tags_of_data_set_and_outcome(two_runs, tmp_path):
    ids = [UUID(run_id) for (run_id,) in query_rows(two_runs, "select run_id from operations.runs")]
    with get_client(sync_client=True) as client:
        runs = [client.read_flow_run(run_id) for run_id in ids]
    assert len({run.name for run in runs}) == len(runs) == 2
    assert all(re.fullmatch(r"ml-latest-small \d{4}-\d\d-\d\d [0-9a-f]{8}", run.name) for run in runs)
    assert [set(run.tags) for run in runs] == [{"dataset:ml-latest-small", "state:completed"}] * 2


def test_the_log_of_a_failed_run_has_the_user_s_error_once_and_without_traceback(prefect_server, tmp_path, ratings):
    bad = tmp_path / "bad.csv"
    bad.write_text("userId,movieId,rating,timestamp\n" + "1,1,77,1000000000\n" * 9)
    given = {
        "dataset": "ml-latest-small",
        "home": str(tmp_path / "home"),
        "models": ["popularity"],
        "source": [str(bad)],
    }
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(backfill_flow, parameters=given)
        state = run_flow(backfill_flow, flow_run=run, parameters=given, return_type="state")
        assert state.is_failed()
        tags = client.read_flow_run(run.id).tags
        for handler in logging.getLogger("prefect.flow_runs").handlers:
            handler.flush()
        body = {"logs": {"flow_run_id": {"any_": [str(run.id)]}}, "limit": 200}
        for _ in range(100):
            lines = [line["message"] for line in client.request("POST", "/logs/filter", json=body).json()]
            if "Finished in state Failed" in lines[-1:]:
                break
            time.sleep(0.2)
    assert set(tags) == {"dataset:ml-latest-small", "state:failed"}
    assert sum("the contract of raw.rejects is broken" in line for line in lines) == 1
    assert not any("Traceback" in line or "ContractBroken" in line for line in lines)


def test_each_protocol_has_its_table_and_says_what_it_is(two_runs):
    for protocol, about in PROTOCOLS.items():
        found = list_artifacts(f"ml-latest-small-evaluation-{protocol.replace('_', '-')}")
        if protocol in ("given", "next_events", "cold_items"):  # which these runs were not asked for
            assert not found
            continue
        rows = json.loads(found[-1].data)
        assert {row["model"].removesuffix(f" {WEAK_MARK}") for row in rows} == {
            "popularity",
            "mrf_dense",
            "bpr_uniform",
        }
        assert [*rows[0]] == ["model", "score", *about.main_metrics, "minus the best"] and all(
            "".join(row.values()) for row in rows
        )
        assert about.meaning in found[-1].description and "± is one standard error" in found[-1].description


def test_a_failed_run_has_its_summary_too_and_notifies(two_runs, tmp_path, ratings):
    bad = tmp_path / "bad.csv"
    bad.write_text("userId,movieId,rating,timestamp\n1,1,77,1000000000\n" * 9)
    notified = (
        f"notify.command={sys.executable} -c \"import sys; open('{tmp_path}/notified', 'w').write(sys.stdin.read())\""
    )
    home = shutil.copytree(two_runs.root, tmp_path / "home", symlinks=True)
    assert commands.main("backfill", [*FAST, "--home", str(home), "--source", str(bad), "--set", notified]) == 1
    summary = list_artifacts("ml-latest-small-summary")[-1].data
    assert "backfill failed" in summary and "the contract of raw.rejects is broken" in summary
    assert (tmp_path / "notified").read_text() == summary


def test_a_night_that_a_worker_runs_tells_of_what_it_cannot_read(prefect_server, tmp_path):
    code = f"import sys; open('{tmp_path}/notified', 'w').write(sys.stdin.read())"
    notified = {"notify.command": f'{sys.executable} -c "{code}"'}
    with pytest.raises(InputError, match="landing"):
        nightly_retrain(dataset="ml-latest-small", home=str(tmp_path / "home"), settings=notified)
    summary = (tmp_path / "notified").read_text()
    assert "nightly-retrain failed" in summary and "landing" in summary
    assert list_artifacts("ml-latest-small-summary")[-1].data == summary


@pytest.mark.parametrize("failures", [0, 1])
def test_a_stage_is_submitted_with_options_of_its_own(two_runs, monkeypatch, failures):
    """The one task of the stage, by a runner, and tried again after a failure that may pass."""
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        query = "select max_by(run_id, started_at) from operations.runs"
        (latest,) = connection.execute(query).fetchone()
        query = "select digest from operations.model_fits where run_id = ? and protocol = 'leave_one_out'"
        (digest,) = connection.execute(f"{query} and model = 'mrf_dense'", [latest]).fetchone()
    tried, fitted = [], train.load_or_fit

    def fitted_at_last(home, *arguments):
        tried.append(home)
        if len(tried) <= failures:
            raise OSError("the network's folder is away")
        return fitted(home, *arguments)

    monkeypatch.setattr(train, "load_or_fit", fitted_at_last)

    @flow
    def night():
        return (
            train.train_task.with_options(retries=1, retry_delay_seconds=0, tags=["again"])
            .submit(
                two_runs,
                latest,
                protocol="leave_one_out",
                matrices_digest=fits.find_fit(two_runs, "mrf_dense", digest).matrices,
                model="mrf_dense",
                settings=MODELS["mrf_dense"].Settings(l2=900.0),
                seed=0,
            )
            .result()
        )

    assert night().digest == digest and len(tried) == 1 + failures


def test_progress_is_shown_once_work_takes_long_and_ends_at_all_of_it(prefect_server, monkeypatch):
    monkeypatch.setattr(artifacts, "SECONDS_BETWEEN_PROGRESS", 0.0)

    @flow
    def work(seconds):
        monkeypatch.setattr(artifacts, "SECONDS_TO_FIRST_PROGRESS", seconds)
        progress = artifacts.ProgressArtifact(f"train-{seconds:.0f}", "mrf_dense (given)")
        for share in (0.25, 0.5, 1.0):
            progress.show(share)

    work(0.0)
    work(60.0)
    (one,) = list_artifacts("train-0")
    assert one.type == "progress" and float(one.data) == 100 and one.description == "mrf_dense (given)"
    assert not list_artifacts("train-60")


def test_a_server_that_is_away_holds_no_stage_up(two_runs, caplog, monkeypatch):
    monkeypatch.setattr(artifacts, "SECONDS_TO_FIRST_PROGRESS", 0.0)
    monkeypatch.setattr(artifacts, "SECONDS_BETWEEN_PROGRESS", 0.0)
    send = PrefectHttpxSyncClient.send

    def refused(client, request, *args, **kwargs):
        if "artifacts" in request.url.path:
            raise httpx.ConnectError("connection refused")
        return send(client, request, *args, **kwargs)

    monkeypatch.setattr(PrefectHttpxSyncClient, "send", refused)
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        (latest,) = connection.execute("select max_by(run_id, started_at) from operations.runs").fetchone()

    def binarize(home, run_id):
        progress = artifacts.ProgressArtifact("train-away", "mrf_dense (given)")
        for step in range(1, 10):
            progress.show(step / 10)
        artifacts.publish_evaluation(home, ROWS)
        artifacts.publish_summary("small", "text", None)
        return "done"

    @flow
    def night():
        return stage_task(binarize)(two_runs, latest)

    caplog.set_level(logging.WARNING, logger="oneclass.tasks.orchestration.artifacts")
    assert night() == "done"
    messages = [
        record.getMessage() for record in caplog.records if record.name == "oneclass.tasks.orchestration.artifacts"
    ]
    names = ["progress", "evaluation", "summary", "contract results"]
    assert messages == [f"{name} cannot be shown in Prefect: connection refused" for name in names]


def test_outside_of_a_run_nothing_is_sent(two_runs, monkeypatch):
    sent = []
    for kind in ("markdown", "table", "link", "progress"):
        monkeypatch.setattr(artifacts, f"create_{kind}_artifact", lambda *args, kind=kind, **kwargs: sent.append(kind))
    monkeypatch.setattr(artifacts, "SECONDS_TO_FIRST_PROGRESS", 0.0)
    with warehouse.open_warehouse(two_runs, read_only=True) as connection:
        (latest,) = connection.execute("select max_by(run_id, started_at) from operations.runs").fetchone()

    def show():
        artifacts.publish_summary("small", "text", "http://reports.example")
        artifacts.publish_evaluation(two_runs, ROWS)
        artifacts.publish_contract_results(two_runs, latest, "binarize", "binarize")
        artifacts.ProgressArtifact("train", "mrf_dense (given)").show(0.5)

    monkeypatch.setattr(artifacts, "_contracts", {})
    show()
    assert sent == []
    flow(show)()
    assert sent == ["link", "markdown", "table", "table", "progress"]
