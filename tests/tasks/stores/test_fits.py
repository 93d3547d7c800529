"""The store of fits: digests, whole folders or none, damage, and retention."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import checksums, fits, runs, warehouse

GRAPH = csr_matrix(np.array([[1, 1, 0], [1, 0, 0]], dtype=np.float32))


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
    version, keys = checksums.library_version, []
    for number in "12":
        torch = lambda name, number=number: number if name == "torch" else version(name)
        monkeypatch.setattr(checksums, "library_version", torch)
        keys.append((fit_key("mult_dae"), fit_key()))
    assert keys[0][0] != keys[1][0] and keys[0][1] == keys[1][1] == base  # torch counts for models that use it


def test_what_was_kept_is_found_and_loaded(home):
    fit = is_stored(home)
    assert fits.find_fit(home, "popularity", fit.digest) == fit
    assert (fit.model, fit.matrices, fit.seconds, fit.peak_bytes) == ("popularity", "m", 1.5, 7)
    model = fits.load_fit(home, "popularity", fit.digest)
    assert model.item_degrees.tolist() == [2, 1, 0] and model.threads == home.limits.threads
    assert fits.find_fit(home, "popularity", "b" * 16) is None
    folder = home.models / "popularity" / fit.digest
    facts = checksums.find_facts(folder, fits.RECORD_FILE) | {"cpu_seconds": 1}  # as an earlier version wrote
    (folder / fits.RECORD_FILE).write_text(checksums.format_manifest(folder, fits.RECORD_FILE, facts))
    assert fits.find_fit(home, "popularity", fit.digest) == fit


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


TWO_BY_TWO = csr_matrix(np.ones((2, 2), dtype=np.float32))


@pytest.fixture
def night(home):
    """A function that makes a run with one fit, at a time of its own."""

    def record_night(name, started_at="2026-01-01", *, publishes=False):
        with runs.record_run(home, name, "backfill", {}):
            digest = name * 16
            fits.store_fit(home, Popularity().fit(TWO_BY_TWO), digest, key="k", matrices="m", seconds=1, peak_bytes=1)
            with warehouse.open_warehouse(home) as connection:
                connection.execute("update operations.runs set started_at = ? where run_id = ?", [started_at, name])
                row = [name, "leave_one_out", "popularity", digest, 1, 1, 1]
                connection.execute("insert into operations.model_fits values (?, ?, ?, ?, ?, ?, ?)", row)
                metric = "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'mean_rank', 1, 0, 1)"
                connection.execute(metric, [name])
            if publishes:
                publish(home, name, PublicationPlan())
            fits.collect_garbage(home, runs=1)

    return record_night


def retained_digests(home):
    return "".join(sorted(folder.name[0] for folder in (home.models / "popularity").iterdir()))


def test_other_fits_go_with_what_was_left_half_written(home, night):
    night("a")
    (home.models / "popularity" / ("a" * 16) / "fit.json").write_text("{")
    for folder in (home.models / "popularity" / "partial", home.matrices / "m", home.matrices / "n"):
        folder.mkdir(parents=True)
    night("b")
    assert retained_digests(home) == "b"
    assert [folder.name for folder in home.matrices.iterdir()] == ["m"]
    night("c", "2031-01-01")
    night("d", "2026-01-01")  # the clock was set right: a run keeps its own fits after runs of the future
    assert retained_digests(home) == "cd"


@pytest.mark.slow
def test_fits_behind_a_publication_stay_however_many_runs_publish_nothing(home, night, monkeypatch):
    monkeypatch.setattr("oneclass.tasks.publish.stage.KEPT", 3)
    night("a", publishes=True)
    for name in "bcd":
        night(name)
    assert retained_digests(home) == "acd"
    for name in "ef":
        night(name, publishes=True)
    assert retained_digests(home) == "aef"  # the last three publications stay
    night("g", publishes=True)
    assert retained_digests(home) == "efg"
