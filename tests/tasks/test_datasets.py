"""Data sets: the built-in ones, a user's own, and errors in a file."""

from pathlib import Path

import pytest

from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError

BUILT_IN = {
    "demo", "netflix", "ml-100k", "ml-1m", "ml-20m", "ml-25m", "msd", "lastfm", "ml-latest-small",
    "citeulike-a", "gowalla", "yelp2018", "amazon-book",
}  # fmt: skip


def write_own_dataset(root: Path, name: str, text: str) -> None:
    (root / "datasets").mkdir(parents=True, exist_ok=True)
    (root / "datasets" / f"{name}.toml").write_text(text, encoding="utf-8")


def test_every_built_in_data_set_loads(tmp_path):
    assert set(datasets.list_datasets(tmp_path)) == BUILT_IN
    for name in BUILT_IN:
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
        assert with_logs or all(known in str(error.value) for known in BUILT_IN)
    assert datasets.load_dataset("ml-1n", tmp_path, with_logs=True, is_declared=True).name == "ml-1n"
    assert datasets.load_dataset("latest", tmp_path, with_logs=True).name == "latest"  # of `lastfm` a third differs


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
    assert datasets.load_dataset("Shop", tmp_path).name == "Shop"
    with pytest.raises(InputError, match="data set 'shop': unknown, there is Shop. A name has"):
        datasets.load_dataset("shop", tmp_path, with_logs=True)
    with pytest.raises(InputError, match="data set 'ml-1M': unknown, there is ml-1m. A name has"):
        datasets.load_dataset("ml-1M", tmp_path, with_logs=True)
    (tmp_path / "shop" / "landing").mkdir(parents=True)  # of a home that has both
    assert {datasets.load_dataset(name, tmp_path).name for name in ("Shop", "shop")} == {"Shop", "shop"}


@pytest.mark.parametrize(
    "text, said",
    [
        ("title = ", "is not TOML"),
        ('title = "x"\ntreshold = 4\n', "unknown key treshold"),
        ('title = "x"\nvalu_min = 4\n', "Did you mean value_min?"),
        ('title = "x"\ncolumns.usr = ["u"]\n', "unknown key columns.usr. Did you mean user?"),
        ('title = "x"\nmax_reject_share = 2\n', "max_reject_share"),
        ('title = "x"\nlayout = "matrix"\n', "layout"),
        ('fields = ["user", "item"]\n', "unknown key fields."),
        ('timezone = "Nowhere/At_all"\n', "timezone: 'Nowhere/At_all' is no time zone"),
        ('title = "x"\nname = "other"\n', "name the file other.toml"),
        ('title = "x"\nname = "My Data"\n', "name the file My Data.toml or correct `name`"),
        ("[events]\nview = 1\nhalf_life_days = 30\n", "it belongs under [binarize]"),
        ('layout = "adjacency"\nevents.view = 1\n', "needs a column with the kind"),
        ('events.view = "much"\n', "events.view"),
        ('rules.not_event = ["gift"]\nevents.order = 1\n', "rules.not_event: 'gift' is no kind of event; known: order"),
        ("[placements.home]\nn = 0\n", "placements.home.n: Input should be greater than or equal to 1"),
        ('rules.baned = ["x"]\n', "unknown key rules.baned. Did you mean banned?"),
        ('[[rules.boosts]]\nwhen = "a"\nby = 1\nwhan = "b"\n', "unknown key rules.boosts.0.whan. Did you mean when?"),
    ],
)
def test_a_malformed_file_is_named_with_its_key(tmp_path, text, said):
    write_own_dataset(tmp_path, "mine", text)
    with pytest.raises(InputError) as error:
        datasets.load_dataset("mine", tmp_path)
    assert str(tmp_path / "datasets" / "mine.toml") in str(error.value)
    assert said in str(error.value)
