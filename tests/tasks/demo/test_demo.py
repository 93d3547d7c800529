"""The demo's log against its truth."""

import json
import re

import duckdb
import numpy as np
import pytest

from oneclass.tasks import demo as story
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo import DemoSettings, make_demo, solve_degree_distributions
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.file_registry import holds_exactly
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home

SMALL = DemoSettings(users=300, items=200, likes=4_000)


def parse_logs(logs):
    """{(user, item): (stars, date)} read line by line, as the format's own description has it."""
    found = {}
    for log in logs:
        item = None
        for line in log.read_text(encoding="ascii").splitlines():
            if line.endswith(":"):
                item = int(line[:-1])
                continue
            user, stars, date = line.split(",")
            assert re.fullmatch(r"200[1-5]-\d\d-\d\d", date)
            assert (int(user), item) not in found
            found[int(user), item] = int(stars), date
    return found


def load_truth(home):
    query = f"select \"user\", item, probability, liked from '{home.truth / 'edges.parquet'}'"
    return {name: np.asarray(column) for name, column in duckdb.sql(query).fetchnumpy().items()}


def make_demo_log(home):
    return json.loads((home.truth / "settings.json").read_text())


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"), "demo")
    return home, make_demo(home, DemoSettings(), 0)


def test_the_log_says_what_the_truth_says(default):
    home, logs = default
    edges, lines = load_truth(home), parse_logs(logs)
    assert len(lines) == len(edges["user"]) == make_demo_log(home)["considered"]
    for user, item, liked in zip(edges["user"], edges["item"], edges["liked"], strict=True):
        assert (lines[user, item][0] >= 4) == liked


def test_every_vertex_is_considered_and_degrees_follow_the_laws(default):
    home, _ = default
    edges, settings = load_truth(home), DemoSettings()
    for side, law in zip(("user", "item"), solve_degree_distributions(settings), strict=True):
        degrees = np.bincount(edges[side])[1:]
        assert len(degrees) == {"user": settings.users, "item": settings.items}[side]
        assert degrees.min() >= 1
        empirical = np.cumsum(np.bincount(degrees, minlength=law.d_max + 1)[1:]) / len(degrees)
        assert np.abs(empirical - law.cdf).max() < 1.63 / np.sqrt(len(degrees))  # level 0.01
        assert (
            make_demo_log(home)["laws"][side]["exponent"] == law.exponent == getattr(story, f"{side.upper()}_EXPONENT")
        )


def test_the_seed_decides_every_byte(tmp_path):
    homes = [Home(tmp_path / str(number), "demo") for number in range(3)]
    for home, seed in zip(homes, (1, 1, 2), strict=True):
        make_demo(home, SMALL, seed)
    files = [
        {file.name: file.read_bytes() for folder in (home.landing, home.truth) for file in sorted(folder.iterdir())}
        for home in homes
    ]
    assert files[0] == files[1]
    assert files[0]["combined_data_1.txt"] != files[2]["combined_data_1.txt"]


def test_a_warehouse_holds_the_demo_until_another_takes_its_place(home):
    declared = load_dataset("demo", home.root)
    logs = make_demo(home, SMALL, 1)
    assert not holds_exactly(home, logs)
    ingest(home, declared, logs, "run", replace=True)
    assert holds_exactly(home, make_demo(home, SMALL, 1))
    assert not holds_exactly(home, make_demo(home, SMALL, 2))


def test_other_settings_take_the_place_of_the_old_log(home, monkeypatch):
    monkeypatch.setattr("oneclass.tasks.demo.LINES_PER_FILE", 3_000)
    several = make_demo(home, SMALL, 1)
    assert [log.name for log in several] == [f"combined_data_{number}.txt" for number in range(1, 5)]
    assert len(parse_logs(several)) == make_demo_log(home)["considered"]
    (home.landing / "mine.csv").write_text("kept")
    monkeypatch.undo()
    [log] = make_demo(home, SMALL, 2)
    assert sorted(file.name for file in home.landing.iterdir()) == ["combined_data_1.txt", "mine.csv"]
    assert make_demo_log(home)["seed"] == 2
    assert len(parse_logs([log])) == make_demo_log(home)["considered"]
    assert not list(home.folder.glob(".demo-*"))


def test_a_failure_leaves_the_old_log_as_it_was(home, monkeypatch):
    [log] = make_demo(home, SMALL, 1)
    before = log.read_bytes(), make_demo_log(home)
    monkeypatch.setattr("oneclass.tasks.demo.draw_ratings", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_demo(home, SMALL, 2)
    assert (log.read_bytes(), make_demo_log(home)) == before and not list(home.folder.glob(".demo-*"))


@pytest.mark.parametrize(("settings", "named"), [
    ({"users": 30, "items": 20, "likes": 601}, "demo.likes"),
    ({"users": 30, "items": 20, "likes": 250}, "demo.likes"),
    ({"users": 30_000, "items": 20, "likes": 100}, "demo.users"),
    ({"users": 30, "items": 20_000, "likes": 100}, "demo.items"),
])  # fmt: skip
def test_impossible_sizes_are_refused_before_anything_is_written(home, settings, named):
    with pytest.raises(InputError, match=named):
        make_demo(home, DemoSettings(**settings), 0)
    assert not home.folder.exists()
