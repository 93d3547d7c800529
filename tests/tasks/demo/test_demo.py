"""The demo's log against the story that it was drawn by."""

import re

import numpy as np
import pytest

from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo import ITEM_EXPONENT, USER_EXPONENT, DemoSettings, make_demo, simulate_likes
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


def count_edges(settings, seed):
    return len(simulate_likes(settings, seed).users)


@pytest.fixture(scope="module")
def default():
    return simulate_likes(DemoSettings(), 0)


def test_the_log_says_what_the_story_says(default, tmp_path):
    lines = parse_logs(make_demo(Home(tmp_path, "demo"), DemoSettings(), 0))
    items = np.repeat(np.arange(DemoSettings().items), np.diff(default.starts))
    assert len(lines) == len(default.users)
    for user, item, liked in zip(default.users, items, default.liked, strict=True):
        assert (lines[user + 1, item + 1][0] >= 4) == liked


def test_every_vertex_is_considered_and_degrees_follow_the_laws(default):
    counts = np.bincount(default.users), np.diff(default.starts)
    laws = default.degree_distributions
    sizes, exponents = (DemoSettings().users, DemoSettings().items), (USER_EXPONENT, ITEM_EXPONENT)
    for degrees, law, size, exponent in zip(counts, laws, sizes, exponents, strict=True):
        assert len(degrees) == size
        assert degrees.min() >= 1
        empirical = np.cumsum(np.bincount(degrees, minlength=law.d_max + 1)[1:]) / len(degrees)
        assert np.abs(empirical - law.cdf).max() < 1.63 / np.sqrt(len(degrees))  # level 0.01
        assert law.exponent == exponent


def test_the_seed_decides_every_byte(tmp_path):
    homes = [Home(tmp_path / str(number), "demo") for number in range(3)]
    for home, seed in zip(homes, (1, 1, 2), strict=True):
        make_demo(home, SMALL, seed)
    files = [{file.name: file.read_bytes() for file in home.landing.iterdir()} for home in homes]
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
    monkeypatch.setattr("oneclass.tasks.demo.EDGES_PER_BLOCK", 1_500)
    monkeypatch.setattr("oneclass.tasks.demo.BLOCKS_PER_FILE", 3)
    several = make_demo(home, SMALL, 1)
    assert [log.name for log in several] == [f"combined_data_{number}.txt" for number in range(1, 4)]
    assert len(parse_logs(several)) == count_edges(SMALL, 1)
    (home.landing / "mine.csv").write_text("kept")
    monkeypatch.undo()
    [log] = make_demo(home, SMALL, 2)
    assert sorted(file.name for file in home.landing.iterdir()) == ["combined_data_1.txt", "mine.csv"]
    assert len(parse_logs([log])) == count_edges(SMALL, 2)
    assert not list(home.folder.glob(".demo-*"))


def test_a_failure_leaves_the_old_log_as_it_was(home, monkeypatch):
    [log] = make_demo(home, SMALL, 1)
    before = log.read_bytes()
    monkeypatch.setattr("oneclass.tasks.demo.draw_ratings", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_demo(home, SMALL, 2)
    assert log.read_bytes() == before and not list(home.folder.glob(".demo-*"))


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
