"""Publications move whole, rolled back to and forth; and what runs after one, such as a copy into PostgreSQL."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.publish import manual, stage
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.settings import DeclaredRules, Placement, Rules
from oneclass.tasks.split.stage import store_all_edges
from oneclass.tasks.stores import runs
from tests import postgres_server
from tests.conftest import execute_statement, home_in, log_into, query_rows, two_tastes
from tests.tasks.conftest import SETTINGS, publish_fit, publish_model, train_model

NEWCOMER, LEFT = "u-new", "u7"
RULED = DeclaredRules(rules=Rules(banned=["i3"], pinned=["i7", "i27"]), placements={"home": Placement(n=3)})
TABLES = ("recommendations", "placements", "exploration", "lists")


def fit_night(home, run_id, model):
    """Fit a model on the events of the home as they are; return what to publish of it."""
    binarize(home, BinarizeSettings(), run_id)
    digest = store_all_edges(home, order=False, timed=None)
    fit = train_model(home, digest, model, MODELS[model].Settings(**SETTINGS[model]), run_id=run_id).digest
    return model, MODELS[model].score_names[-1], fit, digest


def publish_second(home):
    spec = json.loads((home.root / "second.json").read_text())
    settings = PublishSettings(top_n=4)
    publish_fit(home, "second", settings, *spec, declared=DeclaredRules(), exclude_seen=False)


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A home with a first night under rules, a second one without rules and with a new customer, and what each was."""
    home = home_in(tmp_path_factory.mktemp("nights"))
    two_tastes(home)
    settings = PublishSettings(top_n=6, explore="thompson")
    publish_fit(home, "first", settings, *fit_night(home, "first", "random_graph"), declared=RULED)
    states = [read_state(home)]
    log_into(home, [(NEWCOMER, f"i{item}", 1) for item in (1, 2, 50)], file_id=2)
    (home.root / "second.json").write_text(json.dumps(fit_night(home, "second", "popularity")))
    before_second = home.root.with_name("before")
    shutil.copytree(home.root, before_second, symlinks=True)
    publish_second(home)
    return home, before_second, [*states, read_state(home)]


def read_state(home):
    """The rows of the tables of lists, and the digests of the publication's files, by name."""
    rows = {table: query_rows(home, f"from published.{table} order by all") for table in TABLES}
    folder = home.published.resolve()
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    digests = {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    recorded = query_rows(home, "select run_id from operations.publications where is_current")
    assert recorded == [(folder.name,)]
    return rows, digests


def without_times(state):
    """A state without the files whose bytes differ between equal publications."""
    rows, digests = state
    return rows, {name: digest for name, digest in digests.items() if name not in ("manifest.json", "published.duckdb")}


def test_back_and_forth_each_night_is_what_it_was_row_for_row(nights, home):
    shutil.copytree(nights[0].root, home.root, symlinks=True)
    first, second = nights[2]
    assert all(first[0][table] != second[0][table] for table in TABLES)
    assert {"model/rules.json", "placements.parquet", "exploration.parquet"} <= first[1].keys() - second[1].keys()
    assert manual.roll_back(home, "back") == "first" and read_state(home) == first
    shop = load(home.root, "small")
    assert shop.recommend_for("u1")["item_id"].to_list()[0] == "i7" and shop.seen == "exclude"
    # Users and items who left the logs since do not matter.
    execute_statement(home, "delete from raw.events where user_id in (?, ?) or item_id = 'i7'", [NEWCOMER, LEFT])
    binarize(home, BinarizeSettings(), "third")
    assert manual.roll_back(home, "forth", "second") == "second" and read_state(home) == second
    shop = load(home.root, "small")
    assert shop.recommend_for(NEWCOMER).height > 0 and shop.seen == "include"
    assert manual.roll_back(home, "again") == "first" and read_state(home) == first
    assert any(row[0] == LEFT for row in first[0]["recommendations"])


def repair(home):
    """What the next command does before anything else."""
    with runs.record_run(home, "next", "backfill", {}):
        pass


# In a process of its own, since what runs in a fork must not have used the thread pool of polars before.
KILLS = """
import shutil, sys
from functools import partial
from pathlib import Path
from tests.conftest import home_in
from tests.processes import ends_before_change
from tests.tasks.publish import test_rollback
start, folder, change = Path(sys.argv[1]), Path(sys.argv[2]), getattr(test_rollback, sys.argv[3])
number, ended = 0, False
while not ended:
    number += 1
    home = home_in(folder / f"{number:03}")
    shutil.copytree(start, home.root, symlinks=True)
    ended = ends_before_change(number, partial(change, home), from_commit=True)
"""


def roll_back(home):
    manual.roll_back(home, "back")


@pytest.mark.slow
@pytest.mark.parametrize("change", [publish_second, roll_back])
def test_a_kill_at_any_step_from_the_commit_on_leaves_one_night_or_the_other(nights, tmp_path, change):
    home, before_second, (first, second) = *nights[:2], [without_times(state) for state in nights[2]]
    start, after = (before_second, second) if change is publish_second else (home.root, first)
    subprocess.run([sys.executable, "-c", KILLS, str(start), str(tmp_path), change.__name__], check=True)
    seen = []
    for folder in sorted(tmp_path.iterdir()):
        repair(home_in(folder))
        state = without_times(read_state(home_in(folder)))
        assert state in (first, second), folder
        seen.append(state == after)
    assert seen == sorted(seen) and 1 < seen.count(True) < len(seen)


COPY = [sys.executable, str(Path(__file__).parents[3] / "examples" / "publish_to_postgres.py")]
COPIED = "select (select count(*) from small.lists), (select max(score) from small.recommendations)"


def load_alarms(home):
    return [text for (text,) in query_rows(home, "select alarm from operations.alarms")]


FAILING = [
    (["no-such-program"], "No such file"),
    ([sys.executable, "-c", "import sys; sys.exit('the shop is closed')"], "status 1. the shop is closed"),
    ([sys.executable, "-c", "import time; time.sleep(60)"], "did not end within 1 s"),
]


def test_a_command_that_fails_is_an_alarm_and_the_publication_stands(copied, split_once, monkeypatch):
    monkeypatch.setattr(stage, "AFTER_TIMEOUT_SECONDS", 1)
    for number, (command, reason) in enumerate(FAILING):
        publish_model(copied, split_once[1], "wmf", f"night {number}", after=command)
        alarm = load_alarms(copied)[number]
        assert alarm.startswith("publish.after: ") and reason in alarm
        assert copied.published.resolve().name == f"night {number}"


def test_the_script_replaces_the_rows_and_keeps_grants_or_leaves_the_old_lists_until_the_next(
    copied, split_once, postgres, monkeypatch
):
    from adbc_driver_postgresql import dbapi

    def ask(query):
        with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    monkeypatch.setenv("SHOP_LISTS", postgres)
    postgres_server.execute_statements(postgres, "drop schema if exists small cascade")
    publish_model(copied, split_once[1], "wmf", "first", after=COPY)
    before = ask(COPIED)
    refuse = "alter table small.lists add constraint nothing check (rank < 0) not valid"  # comes after recommendations
    grant = "create role app", "grant select on small.recommendations to app"
    postgres_server.execute_statements(postgres, *grant, refuse)
    publish_model(copied, split_once[1], "mrf_dense", "second", after=COPY)
    assert ask(COPIED) == before and copied.published.resolve().name == "second"
    [alarm] = load_alarms(copied)
    assert "nothing" in alarm and postgres_server.PASSWORD not in alarm
    postgres_server.execute_statements(postgres, "alter table small.lists drop constraint nothing")
    publish_model(copied, split_once[1], "slim", "third", after=COPY)
    assert ask(COPIED) != before and len(load_alarms(copied)) == 1
    grants = ask("select grantee from information_schema.table_privileges where table_name = 'recommendations'")
    assert ("app",) in grants
