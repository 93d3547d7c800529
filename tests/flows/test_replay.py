"""Replay of history, night by night: missing nights, skipped nights, and equal tables for each night."""

import json
import shutil

import pytest

from oneclass.flows import commands
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

pytestmark = pytest.mark.slow

DATASET = "ml-latest-small"
QUICK = ["--dataset", DATASET, "--models", "popularity", "--protocols", "strong_generalization", "--threads", "2"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """60 people like some of 30 films, one a day from 2020-01-01 on."""
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(60):
        for day in range(12):
            lines.append(f"{user + 1},{(user * 7 + day * day) % 30 + 1},5,{1577880000 + 86400 * day}")
    path = tmp_path_factory.mktemp("log") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def build_command(home, log, *more):
    return commands.main("backfill", [*QUICK, "--home", str(home), "--source", str(log), *more])


def load_metrics(home):
    """Day -> the metrics that its newest run came to."""
    with warehouse.open_warehouse(Home(home, DATASET), read_only=True) as connection:
        found = connection.execute(
            "select settings ->> 'until', runs.rowid, model, score, metric, value from evaluation.metrics "
            "join operations.runs using (run_id) order by all"
        ).fetchall()
    newest = {day: place for day, place, *_ in found}
    return {day: [row for on, place, *row in found if (on, place) == (day, newest[day])] for day in newest}


@pytest.fixture(scope="module")
def replayed(prefect_server, log, tmp_path_factory):
    """A home in which two nights of three were replayed, by a version that had more settings."""
    home = tmp_path_factory.mktemp("replayed")
    assert build_command(home, log, "--since", "2020-01-05", "--until", "2020-01-08", "--every", "3d") == 0
    gone = {"evaluate": {"attributes": ["country"]}, "publish": {"postgres_env": "SHOP"}, "lineage": {"url": "a"}}
    with warehouse.open_warehouse(Home(home, DATASET)) as connection:
        patched = "update operations.runs set settings = json_merge_patch(settings::json, ?)"
        connection.execute(patched, [json.dumps(gone)])
    return home


def test_a_dry_run_says_what_is_missing_and_runs_nothing(replayed, log, capsys):
    before = load_metrics(replayed)
    asked = ["--since", "2020-01-05", "--until", "2020-01-13", "--every", "3d"]
    assert build_command(replayed, log, *asked, "--dry-run") == 0
    head, first, second, third = capsys.readouterr().out.strip().splitlines()
    assert head == "ml-latest-small, every 3d: 3 nights, 2 done, 1 missing"
    assert first.startswith("2020-01-05  run ") and second.startswith("2020-01-08  run ")
    assert third == "2020-01-11  missing"
    assert load_metrics(replayed) == before


def test_a_nights_replay_gives_that_nights_tables(replayed, log, tmp_path):
    assert build_command(tmp_path, log, "--until", "2020-01-05") == 0
    assert (
        load_metrics(tmp_path)["2020-01-05"]
        == load_metrics(replayed)["2020-01-05"]
        != load_metrics(replayed)["2020-01-08"]
    )


def test_nights_that_were_done_are_passed_over_until_their_events_change(replayed, log, tmp_path, capsys):
    home = shutil.copytree(replayed, tmp_path / "home", symlinks=True)
    asked = ["--since", "2020-01-05", "--until", "2020-01-08", "--every", "3d", "--dry-run"]
    assert build_command(home, log, *asked, "--set", "split.min_user_edges=2") == 0
    assert "2 missing" in capsys.readouterr().out  # with other settings it is another night
    late = tmp_path / "ratings-late.csv"
    late.write_text("userId,movieId,rating,timestamp\n1,1,5,1578398400\n")  # 2020-01-07
    assert commands.main("backfill", [*QUICK, "--home", str(home), "--source", str(late)]) == 0
    capsys.readouterr()
    assert build_command(home, log, *asked) == 0
    _, first, second = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("2020-01-05  run ") and second == "2020-01-08  missing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--every", "1d"], "give --since DATE --until DATE"),
        (["--dry-run"], "give --since DATE --until DATE"),
        (["--since", "2020-01-05", "--until", "2020-01-06", "--every", "day"], "--every day: write a number of days"),
    ],
)
def test_arguments_that_are_no_replay_are_reported(tmp_path, log, capsys, arguments, message):
    assert build_command(tmp_path, log, *arguments) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
