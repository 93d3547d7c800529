"""The store of fits: digests, whole folders or none, retention, warm starts, and damage to every file of a store."""

import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint
from oneclass.models.fit_options import FitOptions, Start
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import checksums, fits, matrices, runs
from oneclass.tasks.stores.fits import build_start
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from tests.conftest import execute_statement, flip_bit, two_tastes
from tests.tasks.conftest import split_likes, train_model

GRAPH = csr_matrix(np.array([[1, 1, 0], [1, 0, 2], [0, 0, 1]], dtype=np.float32))


def is_stored(home, digest="a" * 16, **more):
    values = {"key": digest, "matrices": "m", "seconds": 1.5, "peak_bytes": 7} | more
    return fits.store_fit(home, Popularity().fit(GRAPH), digest, **values)


def fit_key(model="mrf_dense", matrices="m", seed=0, **settings):
    return fits.compute_fit_key(matrices, model, MODELS[model].Settings(**settings), seed)


def test_the_digest_moves_with_everything_a_fit_depends_on(monkeypatch):
    base = fit_key()
    assert fit_key() == base
    others = [fit_key(matrices="n"), fit_key("popularity"), fit_key(l2=1e3), fit_key(seed=1)]
    for module, name, value in ((checksums, "library_version", "0"), (fingerprint, "fingerprint_model", "source")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_, value=value: value)
            others.append(fit_key())
    assert len({base, *others}) == 7


def test_what_was_kept_is_found_and_loaded(home):
    fit = is_stored(home)
    assert fits.find_fit(home, "popularity", fit.digest) == fit
    assert (fit.model, fit.matrices, fit.seconds, fit.peak_bytes) == ("popularity", "m", 1.5, 7)
    model = fits.load_fit(home, "popularity", fit.digest)
    assert model.item_degrees.tolist() == [2, 1, 2] and model.threads == home.limits.threads
    assert fits.find_fit(home, "popularity", "b" * 16) is None


def test_a_blend_shares_the_files_of_its_components(home):
    part = is_stored(home)
    settings = {"components": [{"model": "popularity", "weight": 1.0}]}
    blend = MODELS["blend"](MODELS["blend"].Settings(**settings)).fit(GRAPH)
    fit = fits.store_fit(home, blend, "b" * 16, key="b", matrices="m", seconds=1, peak_bytes=1)
    own, stored = fits.fit_folder(home, "blend", fit.digest), fits.fit_folder(home, "popularity", part.digest)
    assert (own / "0.item_degrees.npy").samefile(stored / "item_degrees.npy")
    checksums.remove_path(stored)
    np.testing.assert_array_equal(fits.load_fit(home, "blend", fit.digest).scores(GRAPH), blend.scores(GRAPH))


def test_a_fit_that_cannot_be_saved_leaves_nothing_and_spares_what_was_there(home, monkeypatch):
    fit = is_stored(home)

    def full(self, folder):
        (folder / "half.npy").write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(Popularity, "save", full)
    with pytest.raises(OSError, match="no space"):
        is_stored(home)
    assert [folder.name for folder in (home.models / "popularity").iterdir()] == [fit.digest]
    assert fits.find_fit(home, "popularity", fit.digest) == fit


EVALUATED = "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'k', 1, 0, 1)"


def record_night(home, name, started_at="2026-01-01", *, publishes=False):
    """Record a run with one fit, at a time of its own."""
    digest = name * 16
    with runs.record_run(home, name, "backfill", {}):
        is_stored(home, digest)
        execute_statement(home, "update operations.runs set started_at = ? where run_id = ?", [started_at, name])
        fitted = "insert into operations.model_fits values (?, 'leave_one_out', 'popularity', ?, 1, 1, 1)"
        execute_statement(home, fitted, [name, digest])
        execute_statement(home, EVALUATED, [name])
        if publishes:
            publish(home, name, PublicationPlan())
        fits.collect_garbage(home, runs=1)


def retained_digests(home):
    return "".join(sorted(folder.name[0] for folder in (home.models / "popularity").iterdir()))


def test_other_fits_go_with_what_was_left_half_written(home):
    record_night(home, "a")
    (home.models / "popularity" / ("a" * 16) / "fit.json").write_text("{")
    for folder in (home.models / "popularity" / "partial", home.matrices / "m", home.matrices / "n"):
        folder.mkdir(parents=True)
    record_night(home, "b")
    assert retained_digests(home) == "b"
    assert [folder.name for folder in home.matrices.iterdir()] == ["m"]
    record_night(home, "c", "2031-01-01")
    record_night(home, "d", "2026-01-01")  # the clock was set right: a run keeps its own fits after runs of the future
    assert retained_digests(home) == "cd"


@pytest.mark.slow
def test_fits_behind_a_publication_stay_however_many_runs_publish_nothing(home, monkeypatch):
    monkeypatch.setattr("oneclass.tasks.publish.stage.KEPT", 3)
    record_night(home, "a", publishes=True)
    for name in "bcd":
        record_night(home, name)
    assert retained_digests(home) == "acd"
    for name in "ef":
        record_night(home, name, publishes=True)
    assert retained_digests(home) == "aef"  # the last three publications stay
    record_night(home, "g", publishes=True)
    assert retained_digests(home) == "efg"


SETTINGS = PairedSymbolsSettings(factors=4, iterations=2)  # kernels are compiled for each number of factors


def run_night(home, run_id, *, warm=True):
    with runs.record_run(home, run_id, "nightly-retrain", {}):
        digest = split_likes(home, "leave_one_out", run_id=run_id)[ALL_EDGES]
        fit = train_model(home, digest, "paired_symbols", SETTINGS, run_id=run_id, warm=warm)
        execute_statement(home, EVALUATED, [run_id])
    return fit, matrices.load_split(home, digest)


def draw_events(users, generator=None):
    generator = generator or np.random.default_rng(2)
    return [(f"u{user}", f"i{item}", 1) for user in users for item in generator.choice(30, size=8, replace=False)]


def load_fit(home, fit):
    return PairedSymbols.load(home.models / "paired_symbols" / fit.digest)


@pytest.fixture
def first(home, log_events):
    log_events(draw_events(range(40)))
    return run_night(home, "first")


@pytest.mark.slow
def test_the_next_night_begins_where_the_last_ended_or_takes_its_fit_if_nothing_is_new(home, log_events, first):
    assert run_night(home, "same")[0].digest == first[0].digest
    log_events(draw_events(range(35, 50), np.random.default_rng(5)), file_id=2)
    fit, split_now = run_night(home, "second")
    users, items = (np.arange(n) for n in split_now.train.shape)
    before = first[1].train.shape
    start = Start(
        load_fit(home, first[0]), np.where(users < before[0], users, -1), np.where(items < before[1], items, -1)
    )
    expected = PairedSymbols(SETTINGS, seed=0).fit(split_now.train, FitOptions(start=start))
    histories = split_now.train[:5]
    cold = PairedSymbols(SETTINGS, seed=0).fit(split_now.train)
    found = fits.load_fit(home, "paired_symbols", fit.digest).scores(histories)
    assert np.array_equal(found, expected.scores(histories))
    assert not np.array_equal(cold.scores(histories), expected.scores(histories))


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["not asked for", "numbered anew", "damaged"])
def test_a_fit_that_cannot_begin_at_the_last_begins_afresh(home, log_events, first, caplog, reason):
    log_events(draw_events(range(35, 50)), file_id=2)
    if reason == "numbered anew":
        execute_statement(home, "delete from raw.events where user_id = 'u0'")  # every later user moves up by one
    if reason == "damaged":
        (home.models / "paired_symbols" / first[0].digest / "fit.json").write_text("{}")
    fit, split_now = run_night(home, "second", warm=reason != "not asked for")
    assert ("numbered anew" in caplog.text) == (reason == "numbered anew")
    afresh = PairedSymbols(SETTINGS, seed=0).fit(split_now.train)
    assert np.array_equal(load_fit(home, fit).scores(split_now.train), afresh.scores(split_now.train))


WMF_SETTINGS = MODELS["wmf"].Settings(factors=4, iterations=1)


@pytest.mark.slow
@pytest.mark.parametrize(("leaked", "begins"), [(0, True), (3, True), (4, False)])
def test_a_hundredth_of_the_targets_may_have_been_trained_on(home, caplog, leaked, begins):
    two_tastes(home)
    protocol = "strong_generalization"  # whose training users are some of all
    digest = split_likes(home, protocol, held_out_share=0.2)[protocol]
    fit = train_model(home, digest, "wmf", WMF_SETTINGS, protocol=protocol)
    before = matrices.load_split(home, digest)
    known = before.train.toarray() > 0
    trained, unknown = np.argwhere(known)[:leaked], np.argwhere(~known)[: 300 - leaked]
    rows, columns = np.concatenate([trained, unknown]).T
    targets = csr_matrix((np.ones(300, dtype=np.float32), (rows, columns)), shape=known.shape)
    assert targets.multiply(before.train).nnz == leaked
    back = np.arange(len(known))[::-1]
    now = replace(before, parts={"test": Part(before.train[back], targets[back], before.users[back], back)})
    start = build_start(home, MODELS["wmf"](WMF_SETTINGS, seed=0), fit, now)
    assert (start is not None) == begins
    assert ("trained on edges that have to be found now" in caplog.text) != begins
    if start is not None:  # users with a leaked target begin as new ones
        assert np.flatnonzero(start.users < 0).tolist() == sorted(set(rows[:leaked].tolist()))


TARGETS = csr_matrix(np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], dtype=np.float32))
USERS = np.arange(3, dtype=np.int32)
SPLIT = SplitMatrices(
    "strong_generalization",
    GRAPH,
    USERS,
    USERS,
    {"test": Part(GRAPH, TARGETS, USERS), "validation": Part(GRAPH, TARGETS, USERS)},
    {"users": 3, "items": 3, "digest": "d"},
)


def flip_at_the_same_time(file):
    """Damage a file silently, as a disk does."""
    before = file.stat()
    flip_bit(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    checksums._hash_cache.clear()  # another process reads it


def into_folder(file):
    file.unlink()
    file.mkdir()


DAMAGES = {
    "flipped": flip_bit,
    "flipped at the same time": flip_at_the_same_time,
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "removed": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "folder": into_folder,
    "overwritten": lambda file: file.write_text('{"facts": {}, "files"' if file.suffix == ".json" else "[]"),
    "another beside it": lambda file: (file.parent / f"more-{file.name}").write_bytes(b"more"),
}


def read_bytes(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


STORES = {
    "fit": (is_stored, lambda home, fit: fits.load_fit(home, "popularity", fit.digest), 3),
    "matrices": (lambda home: matrices.store_split(home, SPLIT), matrices.load_split, 20),
}


@pytest.mark.parametrize("store", [pytest.param("fit"), pytest.param("matrices", marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_cannot_be_loaded_and_is_made_anew(home, caplog, damage, store):
    keep, load, files = STORES[store]
    stored = keep(home)
    folder = home.matrices / stored if store == "matrices" else fits.fit_folder(home, "popularity", stored.digest)
    whole = read_bytes(folder)
    assert len(whole) == files
    for name in whole:
        damage(folder / name)
        with pytest.raises(checksums.DamagedFile, match=name):
            load(home, stored)
        caplog.clear()
        assert store != "fit" or fits.find_fit(home, "popularity", stored.digest) is None
        assert keep(home) == stored
        assert name in caplog.text and "makes it anew" in caplog.text
        assert read_bytes(folder) == whole and load(home, stored)
    checksums.remove_path(folder)
    folder.write_text("")  # a file in the folder's place is damage too
    assert keep(home) == stored and load(home, stored)


def test_every_byte_of_a_record_counts(home):
    fit = is_stored(home)
    file = home.models / "popularity" / fit.digest / "fit.json"
    whole = file.read_bytes()
    for place in range(len(whole)):
        bit = 1 << place % 8
        file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with pytest.raises(checksums.DamagedFile):
            checksums.load_checked_facts(file.parent, file.name)
