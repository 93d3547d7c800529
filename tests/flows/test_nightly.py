"""The nightly deployment: the README's commands, with a real server and worker; and which nights run at all."""

import contextlib
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import AwaitingRetry, Running, Scheduled

from oneclass.flows import commands, pipeline
from oneclass.flows import prefect_server as servers
from oneclass.flows import signals as run_signals
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.run_hooks import notify_outcome
from oneclass.flows.settings import resolve_settings
from oneclass.tasks.errors import InputError
from oneclass.tasks.run_summary import RunDescription
from oneclass.tasks.stores import runs, warehouse
from tests.flows.conftest import query_rows

ROOT = Path(__file__).parents[2]
SMALL = ["--param", 'models=["popularity"]']
SMALL += ["--param", 'settings={"demo.users": 120, "demo.items": 50, "demo.likes": 1500}']


@pytest.fixture
def environment(prefect_server, tmp_path):
    """That of a shell in which the server's address was exported, as the README has it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PREFECT_API_URL": prefect_server, "ONECLASS_HOME": str(tmp_path / "home")}


def find_readme_command(start: str) -> str:
    """The README's command that begins so."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return next(line.strip() for line in lines if line.startswith(f"    {start}"))


def run_pasted(command: str, environment: dict[str, str], *more: str) -> str:
    """Run a command without input, and return its output."""
    where = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL}
    ended = subprocess.run([*command.split(), *more], **where, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_readmes_commands_deploy_and_run_a_night_whose_tables_are_in_the_home(environment, tmp_path):
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_work_pool("oneclass")  # of another test
    run_pasted(find_readme_command("prefect work-pool create"), environment)
    said = run_pasted(find_readme_command("prefect deploy"), environment)
    assert "successfully created" in said
    run_pasted(find_readme_command("prefect deployment run nightly-retrain"), environment, *SMALL)
    run_pasted(find_readme_command("prefect worker start"), environment, "--run-once")
    home = tmp_path / "home" / "demo"
    assert (home / "published" / "recommendations.parquet").exists()
    runs_kept = query_rows(home.parent, "select flow, state from operations.runs", "demo")
    assert runs_kept == [("nightly-retrain", "completed")]


def write_star_log(folder, value):
    """A log in which sixty people give all that they have seen so many stars."""
    lines = [f"{u},{m},{value},{10**9 + u}" for u in range(1, 61) for m in range(1, 21) if (u + m) % 3]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")


@pytest.mark.slow
def test_a_failed_night_is_seen_understood_and_repeated_from_the_ui(environment, tmp_path):
    home, name = tmp_path / "home" / "ml-latest-small", "nightly-retrain/nightly-retrain-ml-latest-small"
    write_star_log(home / "landing", 1)  # no user likes anything
    declared = home.parent / "datasets" / f"{home.name}.toml"
    declared.parent.mkdir()
    declared.write_text('default_models = ["popularity"]\nbinarize.threshold = 4\n')
    assert commands.main("deploy", ["--dataset", home.name, "--home", str(home.parent)]) == 0
    worker = find_readme_command("prefect worker start")
    with get_client(sync_client=True) as client:
        begun = client.create_flow_run_from_deployment(client.read_deployment_by_name(name).id)
        run_pasted(worker, environment, "--run-once")
        night = client.read_flow_run(begun.id)
        why = "none of 800 events has a value of at least binarize.threshold = 4"
        assert night.state.is_failed() and why in night.state.message
        assert {"dataset:ml-latest-small", "state:failed"} <= set(night.tags)
        shown = client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id={"any_": [night.id]}))
        assert any(why in str(one.data) for one in shown if one.key == "ml-latest-small-summary")
        write_star_log(home / "landing", 5)  # the log is mended, and the page's `Retry` sets this state
        client.set_flow_run_state(night.id, AwaitingRetry(message="Retry from the UI"), force=True)
        run_pasted(worker, environment, "--run-once")
        night = client.read_flow_run(night.id)
        assert night.state.is_completed() and [tag for tag in night.tags if "state" in tag] == ["state:completed"]
    runs_kept = query_rows(home.parent, "select run_id, state from operations.runs order by started_at")
    assert runs_kept == [(str(night.id), "failed"), (f"{night.id}-2", "completed")]
    assert (home / "published" / "recommendations.parquet").exists()


def test_a_data_set_gets_a_deployment_of_its_own_with_whole_paths(prefect_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned.toml").write_text("[slim]\nl1 = 2.0\n")
    given = ["--dataset", "ml-1m", "--home", "kept", "--config", "tuned.toml", "--set", "publish.titles=movies.csv"]
    for _ in range(2):  # a second time it is updated
        assert commands.main("deploy", [*given, "--cron", "30 2 * * *", "--timezone", "Europe/Paris"]) == 0
    with get_client(sync_client=True) as client:
        made = client.read_deployment_by_name("nightly-retrain/nightly-retrain-ml-1m")
    assert made.parameters == {
        "dataset": "ml-1m",
        "home": str(tmp_path / "kept"),
        "config": [str(tmp_path / "tuned.toml")],
        "settings": {"publish.titles": str(tmp_path / "movies.csv")},
    }
    assert made.entrypoint == "oneclass.flows.pipeline.nightly_retrain" and not made.pull_steps
    assert [(one.schedule.cron, one.schedule.timezone) for one in made.schedules] == [("30 2 * * *", "Europe/Paris")]
    assert made.global_concurrency_limit is None  # one run at a time is the data set's own rule


@pytest.fixture
def night(prefect_server, tmp_path):
    """The parameters of a small night, its home after one that was completed, and the file of what it notifies of."""
    told = tmp_path / "notified"
    code = f"import os, sys; open('{told}', 'w').write(os.environ['ONECLASS_STATE'] + chr(10) + sys.stdin.read())"
    settings = {"demo.users": 60, "demo.items": 30, "demo.likes": 500}
    settings["notify.command"] = f'{sys.executable} -c "{code}"'
    given = {"dataset": "demo", "home": str(tmp_path), "models": ["popularity"], "settings": settings}
    home = resolve_settings(BackfillParameters(**given)).home
    with runs.record_run(home, "earlier", pipeline.NIGHTLY_DEPLOYMENT, {}):
        pass
    return given, home, told


def find_end_state(given, due=0):
    """The state that a night ends in, which was to begin some hours before."""
    state = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(hours=due))
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given, state=state)
    return run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state")


def test_a_night_ends_as_cancelled_where_another_is_at_work_on_the_data_set(night):
    given, home, told = night
    with runs.lock_data_set(home):
        state = find_end_state(given)
    assert state.is_cancelled() and "another run is at work" in state.message
    assert told.read_text() == f"cancelled\n{state.message}"


@pytest.mark.slow
def test_a_night_that_finds_damage_sends_an_alarm_and_reports_it(night):
    given, home, told = night
    assert find_end_state(given).is_completed() and not told.exists()
    (home.published / "manifest.json").write_text("{}")
    assert find_end_state(given).is_completed()
    state, _, summary = told.read_text().partition("\n")
    alarm = "manifest.json: was damaged or missing; it is restored from the warehouse"
    assert state == "alarm" and f"Alarm: {home.publications}" in summary and alarm in summary
    assert alarm in (home.report / "index.html").read_text()


def test_a_night_whose_home_cannot_be_opened_is_reported(night):
    given, home, told = night
    home.warehouse.write_bytes(b"no database")
    state = find_end_state(given)
    assert state.is_failed() and "cannot be opened as a DuckDB warehouse" in state.message
    assert told.read_text().startswith("failed\n")


@pytest.mark.slow
def test_a_late_night_is_cancelled_where_a_later_one_did_its_work_and_else_is_reported(night):
    given, home, told = night
    state = find_end_state(given, due=3)
    assert state.is_cancelled() and "run earlier began" in state.message
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update operations.runs set started_at = now()::timestamp - interval 1 day")
    assert find_end_state(given, due=3).is_completed()
    assert told.read_text().startswith("late\n") and "\nIt began 3 h" in told.read_text()


@pytest.mark.parametrize(
    ("noted", "shown"),
    [
        ("running", "CRASHED"),
        ("crashed", "CRASHED"),  # by a run that was killed before it notified Prefect
        ("completed", "COMPLETED"),  # but killed before Prefect was notified
    ],
)
def test_a_run_whose_process_died_is_put_right_by_the_next(prefect_server, home, noted, shown):
    with get_client(sync_client=True) as client:
        ids = [client.create_flow_run(pipeline.nightly_retrain, state=Scheduled()).id for _ in range(2)]
        client.set_flow_run_state(ids[0], Running(), force=True)
        with warehouse.open_warehouse(home) as connection:
            for run_id in (ids[0], uuid.uuid4()):  # the second ran with a server that knows nothing here
                connection.execute(
                    "insert into operations.runs (run_id, flow, dataset, started_at, state, settings, code_version) "
                    "values (?, 'nightly-retrain', 'small', now()::timestamp, ?, '{}', '')",
                    [str(run_id), noted],
                )

        @flow
        def following():
            with runs.record_run(home, "next", "nightly-retrain", {}) as earlier:
                pipeline.artifacts.reconcile_runs(earlier)

        following()
        assert client.read_flow_run(ids[0]).state.type.name == shown
        assert client.read_flow_run(ids[1]).state.is_scheduled()
    states = query_rows(home.root, "select distinct state from operations.runs where run_id <> 'next'", "small")
    assert states == [(shown.lower(),)]


def test_a_server_that_is_away_is_done_without_by_runs_and_named_by_a_deployment(tmp_path, caplog, capsys):
    away = "http://127.0.0.1:9/api"
    with temporary_settings({PREFECT_API_URL: away}):
        with servers.ensure_server():
            assert PREFECT_API_URL.value() != away
        assert PREFECT_API_URL.value() == away and away in caplog.text
        assert commands.main("deploy", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 2
    stderr = capsys.readouterr().err
    assert f"{away}: no Prefect server answers there" in stderr and "Start it (prefect server start)" in stderr


def test_a_run_without_a_summary_keeps_its_state_and_notifies(tmp_path, caplog):
    code = f"import sys; open('{tmp_path}/notified', 'w').write(sys.stdin.read())"
    settings = {"notify.command": f'{sys.executable} -c "{code}"'}
    run = resolve_settings(BackfillParameters(dataset="demo", home=str(tmp_path), settings=settings))

    def describe():
        raise InputError("the warehouse is held")

    notify_outcome(run, "r7", "failed", describe)
    assert (tmp_path / "notified").read_text() == "demo: run r7 failed\nNo summary: the warehouse is held"
    assert "cannot be made" in caplog.text


@pytest.mark.parametrize(("signals", "state"), [([], "failed"), ([15], "cancelled")])
def test_an_error_during_the_shutdown_of_a_signalled_run_is_no_failure(tmp_path, monkeypatch, signals, state):
    monkeypatch.setattr(run_signals, "_received_signals", signals)
    run = resolve_settings(BackfillParameters(dataset="demo", home=str(tmp_path)))
    run.home.folder.mkdir()
    notify_outcome(run, "r7", "failed", lambda: RunDescription("failed", "the server is gone", [], []))
    assert f">{state}" in (tmp_path / "index.html").read_text()
