"""Remote stores of the S3 protocol: objects are fetched whole or not at all, and damage is detected."""

import hashlib
import logging
import pickle
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from fsspec.registry import known_implementations
from scipy.sparse import random as random_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.popularity import Popularity
from oneclass.models.random_graph.model import RandomGraph
from oneclass.models.random_graph.settings import RandomGraphSettings
from oneclass.tasks.errors import InputError, SharedStoreUnavailable
from oneclass.tasks.stores import checksums, fits, matrices, remote, remote_scratch, retention
from oneclass.tasks.stores.matrices import MatrixStoreRows, SplitMatrices
from tests import s3_server

TRAIN = random_matrix(200, 30, 0.1, format="csr", dtype=np.float32, random_state=1)
SPLIT = SplitMatrices("leave_one_out", TRAIN, np.arange(200, dtype=np.int32), np.arange(30, dtype=np.int32))
FIT = {"key": "k", "matrices": "m", "seconds": 1.0, "peak_bytes": 1}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server.start_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def home(home, s3, tmp_path):
    """The coordinator's, with a prefix of its own."""
    return replace(home, store=f"{s3.url}/{tmp_path.name}/")


@pytest.fixture
def worker(home, tmp_path):
    """The same home as a worker has it that sees nothing of it."""
    return replace(home, root=tmp_path / "cache")


@pytest.fixture
def stored(home):
    """The digest of matrices that are at the URL."""
    digest = matrices.store_split(home, SPLIT)
    matrices.upload_splits(home, [digest])
    return digest


def object_name(s3, home, name):
    return remote.url_of(home, name).removeprefix("s3://")


def damage_object(s3, home, name, at=None):
    found = bytearray(s3.files.cat_file(object_name(s3, home, name)))
    found[random.Random(name).randrange(len(found)) if at is None else at] ^= 1
    s3.files.pipe_file(object_name(s3, home, name), bytes(found))


def list_files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_matrices_are_put_once_and_fetched_as_they_were(s3, home, worker, stored, caplog):
    caplog.set_level(logging.INFO)
    matrices.upload_splits(home, [stored])
    assert not caplog.messages
    assert (matrices.load_split(worker, stored).train != TRAIN).nnz == 0
    assert list_files(worker.matrices / stored) == list_files(home.matrices / stored)


def test_fits_are_found_loaded_and_brought_home(home, worker):
    assert fits.find_fit(worker, "popularity", "d") is None
    fit = fits.store_fit(worker, Popularity().fit(TRAIN), "d", **FIT)
    with pytest.raises(SharedStoreUnavailable, match=r"popularity/d: is not there, or not whole"):
        fits.download_fit(home, fit)
    fits.upload_fit(worker, fit)
    fits.download_fit(home, fit)
    assert fits.find_fit(home, "popularity", "d") == fit
    assert list_files(fits.fit_folder(worker, "popularity", "d")) == list_files(
        fits.fit_folder(home, "popularity", "d")
    )
    assert fits.load_fit(home, "popularity", "d").name == "popularity"


def test_what_is_half_put_counts_as_absent_and_is_put_whole(s3, home, worker, stored):
    s3.files.rm_file(object_name(s3, home, f"matrices/{stored}/split.json"))
    with pytest.raises(
        checksums.DamagedFile, match=rf"s3://.*/matrices/{stored}: is not there, or not whole; run the same"
    ):
        matrices.load_split(worker, stored)
    matrices.upload_splits(home, [stored])
    s3.files.rm_file(object_name(s3, home, f"matrices/{stored}/users.npy"))
    matrices.upload_splits(home, [stored])
    assert matrices.load_split(worker, stored).protocol == "leave_one_out"


@pytest.mark.parametrize("name", ["train_indices.npy", "users.npy", "split.json"])
def test_damage_at_the_url_is_found_and_put_right(s3, home, worker, stored, name, caplog):
    damage_object(s3, home, f"matrices/{stored}/{name}")
    with pytest.raises(checksums.DamagedFile, match="run the same command again"):
        matrices.load_split(worker, stored)
    assert f"{name}: is damaged" in caplog.text and remote.url_of(home, f"matrices/{stored}") in caplog.text
    matrices.upload_splits(home, [stored])
    assert (matrices.load_split(worker, stored).train != TRAIN).nnz == 0


def test_a_fit_that_is_damaged_at_the_url_is_made_anew(s3, home, worker):
    fit = fits.store_fit(home, Popularity().fit(TRAIN), "d", **FIT)
    fits.upload_fit(home, fit)
    damage_object(s3, home, "models/popularity/d/item_degrees.npy")
    assert fits.find_fit(worker, "popularity", "d") is None
    with pytest.raises(
        checksums.DamagedFile, match=r"s3://.*/models/popularity/d: is not there, or not whole; run the same"
    ):
        fits.load_fit(worker, "popularity", "d")
    fits.upload_fit(home, fit)
    assert fits.find_fit(worker, "popularity", "d") == fit


def test_a_record_that_names_a_place_outside_of_its_folder_is_refused(s3, home, worker, stored):
    there, name = object_name(s3, home, f"matrices/{stored}"), "../../outside"
    facts, _ = checksums.parse_record(s3.files.cat_file(f"{there}/split.json").decode(), there)
    s3.files.pipe_file(f"{there}/{name}", b"anything")
    digest = hashlib.sha256(b"anything").hexdigest()
    s3.files.pipe_file(f"{there}/split.json", checksums._format_record(facts, {name: digest}).encode())
    with pytest.raises(checksums.DamagedFile):
        matrices.load_split(worker, stored)
    assert not list(worker.root.rglob("outside"))


def test_what_is_damaged_here_is_fetched_anew(home, worker, stored):
    for one in (home, worker):
        matrices.load_split(one, stored)
        (one.matrices / stored / "items.npy").write_bytes(b"")
        assert len(matrices.load_split(one, stored).items) == 30


@pytest.mark.parametrize(("first", "end"), [(0, 200), (0, 1), (50, 120), (199, 200)])
def test_rows_are_those_of_the_matrix_wherever_it_lies(home, worker, stored, first, end):
    for one in (replace(home, store=None), home, worker):
        found = MatrixStoreRows(one, stored)(first, end)
        assert found.shape == (end - first, 30) and (found != TRAIN[first:end]).nnz == 0
        assert (found.indices.dtype, found.data.dtype) == (np.int32, np.float32)


def test_the_url_keeps_what_the_home_keeps(home, stored):
    fits.upload_fit(home, fits.store_fit(home, Popularity().fit(TRAIN), "d", **FIT))
    kept = {"models/popularity/d", f"matrices/{stored}"}
    assert remote.list_folders(home) == kept
    remote.delete_others(home, {"models/popularity/d"})
    assert remote.list_folders(home) == {"models/popularity/d"}


def test_a_cache_keeps_what_is_of_matrices_at_the_url(home, worker, stored):
    fits.store_fit(worker, Popularity().fit(TRAIN), "d", **FIT | {"matrices": stored})  # and could not be put
    fits.store_fit(worker, Popularity().fit(TRAIN), "e", **FIT)
    fits.checkpoint_folder(worker, "popularity", "f").mkdir()
    matrices.load_split(worker, stored)
    retention.evict_worker_cache(worker)
    assert [folder.name for folder in (worker.models / "popularity").iterdir()] == ["d"]
    assert (worker.matrices / stored).exists()
    remote.delete_others(home, set())
    retention.evict_worker_cache(worker)
    assert not list(worker.matrices.iterdir()) and not list(worker.models.glob("*/*"))


def test_scratch_at_the_url_holds_arrays_while_a_fit_goes_on(s3, home):
    remote.write_sentinel(home, "sentinel")
    with remote_scratch.open_scratch(home, "random_graph") as scratch:
        scratch.write("a", {"x": np.zeros(1)})
        scratch.write("a", {"x": np.arange(3.0), "y": np.eye(2)})
        scratch.write("b", {"x": np.arange(2.0)})
        found = pickle.loads(pickle.dumps(scratch)).read("a")
        assert set(found) == {"x", "y"} and np.array_equal(found["x"], np.arange(3.0))
        scratch.remove("b")
        scratch.remove("b")
        with pytest.raises(FileNotFoundError, match=r"s3://.*/b.npz: not there"):
            scratch.read("b")
        damage_object(s3, home, f"{scratch.folder}/a.npz", at=-200)
        with pytest.raises(checksums.DamagedFile, match=r"s3://.*/a.npz: is damaged"):
            scratch.read("a")
    assert [name.rpartition("/")[2] for name in s3.names() if "/spill/" in name] == ["sentinel"]


def test_a_run_deletes_the_scratch_of_an_earlier_one_and_leaves_its_sentinel(home):
    remote.write_sentinel(home, "sentinel")
    assert remote.has_sentinel(home, "sentinel") and not remote.has_sentinel(home, "another")
    remote.write_sentinel(home, "next")
    assert not remote.has_sentinel(home, "sentinel")
    remote.remove_sentinel(home, "next")
    assert not remote.has_sentinel(home, "next")


class Apart:
    """Runs every call on two workers, one after the other, each with a cache of its own; the last one answers."""

    def __init__(self, folder):
        self.caches = [folder / name for name in ("one", "another")]

    def map(self, function, calls):
        for cache in self.caches:
            remote.use_cache(cache)
            answers = [function(*pickle.loads(pickle.dumps(call))) for call in calls]
        remote.use_cache(None)
        return answers


@pytest.mark.slow
def test_a_fit_by_blocks_has_the_bits_of_one_process(s3, home, stored, tmp_path):
    options = FitOptions(
        workers=Apart(tmp_path),
        rows=MatrixStoreRows(home, stored),
        scratch=partial(remote_scratch.open_scratch, home),
    )
    settings = RandomGraphSettings(factors=3, iterations=4, blocks=3)
    there = RandomGraph(settings).fit(TRAIN, options)._arrays()
    for name, array in RandomGraph(settings).fit(TRAIN)._arrays().items():
        np.testing.assert_array_equal(there[name], array)
    assert not list(home.spill.rglob("*.*")) and not any(f"{tmp_path.name}/small/spill" in name for name in s3.names())


def test_a_bucket_that_is_not_there_is_reported_before_a_run(home):
    with pytest.raises(InputError, match=r"--store s3://no-such-bucket/x: cannot be used .*bucket does not exist"):
        remote.write_sentinel(replace(home, store="s3://no-such-bucket/x"), "sentinel")


def test_a_lost_bucket_is_reported_with_a_remedy(s3, home, stored):
    gone = replace(home, store="s3://no-such-bucket/x")
    with pytest.raises(
        SharedStoreUnavailable, match=r"s3://no-such-bucket/x: cannot be used .*the same command goes on"
    ):
        matrices.upload_splits(gone, [stored])
    with (
        pytest.raises(SharedStoreUnavailable, match="no-such-bucket"),
        remote_scratch.open_scratch(gone, "wmf") as scratch,
    ):
        scratch.write("a", {})
    remote.delete_others(gone, set())  # at the end of a run, which has published: said, no more


def test_a_package_that_is_not_installed_is_named(home, monkeypatch):
    absent = {"class": "no_such_module.FileSystem", "err": "Install s3fs to access S3"}
    monkeypatch.setitem(known_implementations, "absent", absent)
    with pytest.raises(InputError, match=r"--store absent://bucket/x: Install s3fs .* run .*pip install .*\[s3\]"):
        remote.write_sentinel(replace(home, store="absent://bucket/x"), "sentinel")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/prefix", "write it as s3://BUCKET/PREFIX"),
        ("s3://", "write it as s3://BUCKET/PREFIX"),
        ("ftp://me:secret@host/x", "has a password in it"),
        ("abfs://container/x?sig=secret", "has a query in it"),
    ],
)
def test_a_url_that_is_none_is_refused(url, message):
    with pytest.raises(InputError, match=message) as refused:
        remote.check_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_an_unknown_protocol_is_reported(home):
    with pytest.raises(InputError, match=r"--store nowhere://x/y: Protocol not known"):
        remote.write_sentinel(replace(home, store="nowhere://x/y"), "sentinel")
