"""The store of sums: the next night's fits are those of a home that begins with everything, and damage is made good."""

import shutil

import numpy as np
import pytest

from models.catalogue import MODELS
from tasks.binarize import BinarizeSettings, binarize
from tasks.split import ALL_EDGES, SplitSettings, split
from tasks.stores import fits, grams, manifest, matrices, retention, runs, warehouse
from tasks.train import train
from tests.conftest import home_in, log_into

KINDS = ("mrf_dense", "mrf_sparse", "slim")


def night(home, run_id, *, protocol=ALL_EDGES, models=KINDS):
    """Binarize, split and fit once, as a run that ends well; the folders of the fits, and the matrices' digest."""
    with runs.recorded(home, run_id, "nightly-retrain", {}):
        binarize(home, BinarizeSettings(), run_id)
        found = split(home, SplitSettings(), run_id, protocols=["leave_one_out"], seed=0).digests[protocol]
        for model in models:
            chosen = MODELS[model].Settings(user_weight_exponent=0.5)
            train(home, run_id, protocol=protocol, matrices_digest=found, model=model, settings=chosen, seed=0)
        with warehouse.connect(home) as connection:  # what an evaluation leaves
            connection.execute(
                "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'k', 1, 0, 1)", [run_id]
            )
    return found


def arrays(home):
    """The bytes of every array of every fit, by its place, which the digest is part of."""
    return {file.relative_to(home.models): file.read_bytes() for file in home.models.rglob("*.npy")}


def events(first, end):
    generator = np.random.default_rng(first)
    return [(f"u{u}", f"i{i}", 1) for u in range(first, end) for i in generator.choice(30, 12, replace=False)]


MORE = [*events(100, 103), ("u7", "new", 1), ("u8", "new", 1)]


@pytest.fixture(scope="module")
def first_night(tmp_path_factory):
    """A home after a first night, for tests to copy; and the digest of its matrices."""
    home = home_in(tmp_path_factory.mktemp("first"))
    log_into(home, events(0, 100))
    return home, night(home, "first")


@pytest.fixture
def first(first_night, home):
    """The digest of the first night's matrices; `home` is as that night left it."""
    shutil.copytree(first_night[0].root, home.root, symlinks=True)
    return first_night[1]


@pytest.fixture(scope="module")
def of_both(tmp_path_factory):
    """A home that was made from nothing with the events of both nights; for tests that only read it."""
    home = home_in(tmp_path_factory.mktemp("both"))
    log_into(home, events(0, 100))
    log_into(home, MORE, file_id=2)
    night(home, "both")
    return home


def stored(home):
    return sorted(home.sums.iterdir())


@pytest.mark.slow
def test_the_next_night_fits_by_the_rows_that_changed_and_has_the_bits_of_one_from_nothing(
    home, log_events, first, of_both, caplog
):
    (sums_before,) = stored(home)  # of one exponent, whatever the models
    log_events(MORE, file_id=2)
    with caplog.at_level("INFO"):
        digest = night(home, "second")
    assert "by the rows that changed" in caplog.text and caplog.text.count("X'X of all_edges") == 1
    (sums,) = stored(home)
    assert sums != sums_before and (sums / "sums.npy").read_bytes() == (stored(of_both)[0] / "sums.npy").read_bytes()
    now = {place: array for place, array in arrays(home).items() if place in arrays(of_both)}
    assert now == arrays(of_both) and len(now) >= len(KINDS)
    train_now = matrices.read(home, digest, parts=()).train
    for model in KINDS:
        chosen = MODELS[model].Settings(user_weight_exponent=0.5)
        kept = fits.load(home, model, fits.key_of(digest, model, chosen, 0))
        alone = MODELS[model](chosen, threads=1).fit(train_now)  # without a store
        np.testing.assert_array_equal(kept.scores(train_now), alone.scores(train_now))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["a bit", "cut short", "no record", "no array", "matrices"])
def test_what_is_damaged_is_summed_from_nothing_and_said(home, log_events, first, of_both, caplog, damage):
    (folder,) = stored(home)
    array = folder / "sums.npy"
    if damage == "a bit":
        content = bytearray(array.read_bytes())
        content[-5] ^= 1
        array.write_bytes(content)
    elif damage == "cut short":
        array.write_bytes(array.read_bytes()[:-8])
    elif damage == "no array":
        array.unlink()
    elif damage == "no record":
        (folder / "sums.json").unlink()
    else:
        (home.matrices / first / "train_indices.npy").unlink()
    log_events(MORE, file_id=2)
    with caplog.at_level("INFO"):
        night(home, "second")
    assert "summed from nothing" in caplog.text and "by the rows" not in caplog.text
    now = {place: array for place, array in arrays(home).items() if place in arrays(of_both)}
    assert now == arrays(of_both)
    assert (stored(home)[-1] / "sums.npy").exists()


def test_damage_to_tonights_own_sums_is_made_good(home, first):
    (folder,) = stored(home)
    right = (folder / "sums.npy").read_bytes()
    (folder / "sums.npy").write_bytes(right[:-1] + b"?")
    train_now = matrices.read(home, first, parts=()).train
    found = grams.sums(home, first, train_now, 0.5, 1)
    assert (folder / "sums.npy").read_bytes() == right
    assert found[-1] == np.frombuffer(right, dtype=np.float64)[-1]


def test_each_exponent_has_sums_of_its_own_and_the_newest_stay(home, log_events, first):
    train_now = matrices.read(home, first, parts=()).train
    for exponent in (0.0, 0.5, 1.0):
        grams.sums(home, first, train_now, exponent, 1)
    assert len(stored(home)) == 3
    log_events(MORE, file_id=2)
    digest = night(home, "second")
    assert len(stored(home)) == 3
    facts = [manifest.facts(folder, grams.RECORD) for folder in stored(home)]
    newest = {one["exponent"]: one["matrices"] for one in facts}
    assert newest == {0.0: first, 0.5: digest, 1.0: first}
    retention.tidy(home, runs=1)  # the first night's fits and matrices go, and with them the sums
    assert [manifest.facts(folder, grams.RECORD)["matrices"] for folder in stored(home)] == [digest]


@pytest.mark.slow
def test_a_log_so_sparse_or_of_so_many_items_that_it_costs_more_than_it_saves_has_none(home, log_events, monkeypatch):
    log_events(events(0, 40))
    monkeypatch.setattr(grams, "MOST", 8 * 31 * 15)
    night(home, "wide")
    monkeypatch.undo()
    log_events([(f"u{u}", f"j{u}", 1) for u in range(40)], file_id=2)
    night(home, "sparse")
    assert not home.sums.exists()


def test_where_they_cannot_be_written_the_fit_goes_on(home, log_events, monkeypatch, caplog, of_both):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grams.os, "posix_fallocate", full)
    log_events(events(0, 100))
    log_events(MORE, file_id=2)
    night(home, "full")
    assert "No space left" in caplog.text and arrays(home) == arrays(of_both)
    assert not stored(home)
