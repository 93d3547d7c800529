"""Data sets: the built-in ones, a user's own, errors in a file, and the demo's log against its story."""

import re
from pathlib import Path

import numpy as np
import pytest

from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.demo import DemoSettings, make_demo, simulate_likes
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.file_registry import holds_exactly
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home


def write_own_dataset(root: Path, name: str, text: str) -> None:
    (root / "datasets").mkdir(parents=True, exist_ok=True)
    (root / "datasets" / f"{name}.toml").write_text(text, encoding="utf-8")


def test_every_built_in_data_set_loads(tmp_path):
    names = datasets.list_datasets(tmp_path)
    assert {"demo", "ml-1m"} < set(names)
    for name in names:
        dataset = datasets.load_dataset(name, tmp_path)
        assert (dataset.name, bool(dataset.title), bool(dataset.licence)) == (name, True, True)
        assert dataset.default_models[0] == "popularity"


def test_a_person_adds_a_data_set_by_adding_a_file(tmp_path):
    text = 'title = "Songs"\ncolumns.user = ["listener"]\n[models.mrf_dense]\nl2 = 3.0\n'
    write_own_dataset(tmp_path, "songs", f"{text}[events]\nview = 1\n[binarize]\nhalf_life_days = 30\n")
    dataset = datasets.load_dataset("songs", tmp_path)
    assert "songs" in datasets.list_datasets(tmp_path)
    assert dataset.columns.user == ("listener",)
    assert dataset.columns.item == Dataset(name="x", title="x").columns.item
    assert dataset.models == {"mrf_dense": {"l2": 3.0}}
    assert dataset.binarize_settings == {"event_weights": {"view": 1.0}, "half_life_days": 30}
    write_own_dataset(tmp_path, "ml-1m", 'title = "Mine"\n')  # in place of the built-in one
    assert datasets.load_dataset("ml-1m", tmp_path).title == "Mine"
    assert datasets.list_datasets(tmp_path).count("ml-1m") == 1


def test_a_name_like_a_known_one_is_a_slip_unless_it_is_about_to_be_declared(tmp_path):
    for slip, with_logs in (("ml-1n", True), ("ml1m", True), ("ml1m", False)):
        with pytest.raises(InputError, match=r"Did you mean ml-1m\?") as error:
            datasets.load_dataset(slip, tmp_path, with_logs=with_logs)
        assert with_logs or all(known in str(error.value) for known in datasets.list_datasets(tmp_path))
    assert datasets.load_dataset("ml-1n", tmp_path, with_logs=True, is_declared=True).name == "ml-1n"


def test_logs_of_a_name_that_no_file_declares_are_taken_by_the_defaults(tmp_path):
    assert datasets.load_dataset("mine", tmp_path, with_logs=True) == Dataset(name="mine", title="mine")
    with pytest.raises(InputError, match=r"Name its logs \(--source\)"):
        datasets.load_dataset("mine", tmp_path)
    (tmp_path / "mine" / "landing").mkdir(parents=True)  # for the nights, which name no logs
    assert datasets.load_dataset("mine", tmp_path).files == ("*",)


BAD_NAMES = ["my logs", "../mine", "", "-x", "ä", "a\n", "x" * 101, "datasets", "Index.html", "ML-1M"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("declared", [False, True])
def test_a_name_outside_the_grammar_is_refused_with_what_to_do(tmp_path, name, declared):
    if declared and "/" not in name:
        write_own_dataset(tmp_path, name, 'title = "x"\n')
    with pytest.raises(InputError) as error:
        datasets.load_dataset(name, tmp_path, with_logs=True)
    assert datasets.NAME_RULE in str(error.value) and f"rename {tmp_path / name}" in str(error.value)


def test_of_two_names_that_differ_by_case_the_second_is_refused(tmp_path):
    (tmp_path / "Shop" / "landing").mkdir(parents=True)
    for name, known in (("shop", "Shop"), ("ml-1M", "ml-1m")):
        with pytest.raises(InputError, match=f"data set '{name}': unknown, there is {known}. A name has"):
            datasets.load_dataset(name, tmp_path, with_logs=True)
    (tmp_path / "shop" / "landing").mkdir(parents=True)  # of a home that has both
    assert {datasets.load_dataset(name, tmp_path).name for name in ("Shop", "shop")} == {"Shop", "shop"}


@pytest.mark.parametrize(
    "text, said",
    [
        ("title = ", "is not TOML"),
        ('title = "x"\ntreshold = 4\n', "unknown key treshold"),
        ('title = "x"\nvalu_min = 4\n', "Did you mean value_min?"),
        ('timezone = "Nowhere/At_all"\n', "timezone: 'Nowhere/At_all' is no time zone"),
        ('title = "x"\nname = "other"\n', "name the file other.toml"),
        ("[events]\nview = 1\nhalf_life_days = 30\n", "it belongs under [binarize]"),
        ('layout = "adjacency"\nevents.view = 1\n', "needs a column with the kind"),
        ('rules.not_event = ["gift"]\nevents.order = 1\n', "rules.not_event: 'gift' is no kind of event; known: order"),
        ('rules.baned = ["x"]\n', "unknown key rules.baned. Did you mean banned?"),
    ],
)
def test_a_malformed_file_is_named_with_its_key(tmp_path, text, said):
    write_own_dataset(tmp_path, "mine", text)
    with pytest.raises(InputError) as error:
        datasets.load_dataset("mine", tmp_path)
    assert str(tmp_path / "datasets" / "mine.toml") in str(error.value)
    assert said in str(error.value)


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


def test_the_log_says_what_the_story_says(tmp_path):
    simulated = simulate_likes(DemoSettings(), 0)
    lines = parse_logs(make_demo(Home(tmp_path, "demo"), DemoSettings(), 0))
    items = np.repeat(np.arange(DemoSettings().items), np.diff(simulated.starts))
    assert len(lines) == len(simulated.users)
    for user, item, liked in zip(simulated.users, items, simulated.liked, strict=True):
        assert (lines[user + 1, item + 1][0] >= 4) == liked


def test_the_seed_decides_every_byte_and_a_warehouse_holds_the_demo_until_another_takes_its_place(home, tmp_path):
    homes = [home, *(Home(tmp_path / str(number), "demo") for number in range(2))]
    logs = [make_demo(one, SMALL, seed) for one, seed in zip(homes, (1, 1, 2), strict=True)]
    files = [{file.name: file.read_bytes() for file in one.landing.iterdir()} for one in homes]
    assert files[0] == files[1]
    assert files[0]["combined_data_1.txt"] != files[2]["combined_data_1.txt"]
    assert not holds_exactly(home, logs[0])
    ingest(home, datasets.load_dataset("demo", home.root), logs[0], "run", replace=True)
    assert holds_exactly(home, make_demo(home, SMALL, 1))
    assert not holds_exactly(home, make_demo(home, SMALL, 2))


def test_other_settings_take_the_place_of_the_old_log_unless_they_fail(home, monkeypatch):
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
    before = log.read_bytes()
    monkeypatch.setattr("oneclass.tasks.demo.draw_ratings", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_demo(home, SMALL, 3)
    assert log.read_bytes() == before and not list(home.folder.glob(".demo-*"))


@pytest.mark.parametrize(("users", "likes", "named"), [(30, 601, "demo.likes"), (30_000, 100, "demo.users")])
def test_impossible_sizes_are_refused_before_anything_is_written(home, users, likes, named):
    with pytest.raises(InputError, match=named):
        make_demo(home, DemoSettings(users=users, items=20, likes=likes), 0)
    assert not home.folder.exists()
