"""The stores by URL, of the S3 protocol: what is put there is fetched whole or not at all, and damage is found."""

import hashlib
import logging
import random
from dataclasses import replace

import numpy as np
import pytest
from fsspec.registry import known_implementations
from scipy.sparse import random as random_matrix

from models.popularity import Popularity
from tasks.errors import InputError, StoreLost
from tasks.stores import fits, manifest, matrices, remote, retention, row_blocks, run_at_url, shelf_at_url, urls
from tasks.stores.matrices import SplitMatrices, StoredRows
from tests import s3_server

TRAIN = random_matrix(200, 30, 0.1, format="csr", dtype=np.float32, random_state=1)
SPLIT = SplitMatrices("leave_one_out", TRAIN, np.arange(200, dtype=np.int32), np.arange(30, dtype=np.int32))
FIT = {"key": "k", "matrices": "m", "seconds": 1.0, "peak_bytes": 1}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server.started(tmp_path_factory.mktemp("s3")) as server:
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
def stored(home, monkeypatch):
    """The digest of matrices of seven row blocks, which are at the URL."""
    monkeypatch.setattr(row_blocks, "EDGES", 100)
    digest = matrices.write(home, SPLIT)
    matrices.share(home, [digest])
    return digest


def place(s3, home, name):
    return urls.of(home, name).removeprefix("s3://")


def damage(s3, home, name, at=None):
    found = bytearray(s3.files.cat_file(place(s3, home, name)))
    found[random.Random(name).randrange(len(found)) if at is None else at] ^= 1
    s3.files.pipe_file(place(s3, home, name), bytes(found))


def files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_matrices_are_put_once_and_fetched_as_they_were(s3, home, worker, stored, caplog):
    caplog.set_level(logging.INFO)
    matrices.share(home, [stored])
    assert not caplog.messages
    assert (matrices.read(worker, stored).train != TRAIN).nnz == 0
    assert files(worker.matrices / stored) == files(home.matrices / stored)


def test_fits_are_found_loaded_and_brought_home(home, worker):
    assert fits.find(worker, "popularity", "d") is None
    fit = fits.keep(worker, Popularity().fit(TRAIN), "d", **FIT)
    with pytest.raises(StoreLost, match=r"popularity/d: is not there, or not whole"):
        fits.bring(home, fit)
    fits.share(worker, fit)
    fits.bring(home, fit)
    assert fits.find(home, "popularity", "d") == fit
    assert files(fits.folder_of(worker, "popularity", "d")) == files(fits.folder_of(home, "popularity", "d"))
    assert fits.load(home, "popularity", "d").name == "popularity"


def test_what_is_half_put_counts_as_absent_and_is_put_whole(s3, home, worker, stored):
    s3.files.rm_file(place(s3, home, f"matrices/{stored}/split.json"))
    with pytest.raises(manifest.Damaged, match=rf"s3://.*/matrices/{stored}: is not there, or not whole; run the same"):
        matrices.read(worker, stored)
    matrices.share(home, [stored])
    s3.files.rm_file(place(s3, home, f"matrices/{stored}/users.npy"))
    matrices.share(home, [stored])
    assert matrices.read(worker, stored).protocol == "leave_one_out"


@pytest.mark.parametrize("name", ["train_indices.npy", "users.npy", "split.json"])
def test_damage_at_the_url_is_found_and_put_right(s3, home, worker, stored, name, caplog):
    damage(s3, home, f"matrices/{stored}/{name}")
    with pytest.raises(manifest.Damaged, match="run the same command again"):
        matrices.read(worker, stored)
    assert f"{name}: is damaged" in caplog.text and urls.of(home, f"matrices/{stored}") in caplog.text
    matrices.share(home, [stored])
    assert (matrices.read(worker, stored).train != TRAIN).nnz == 0


def test_a_fit_that_is_damaged_at_the_url_is_made_anew(s3, home, worker):
    fit = fits.keep(home, Popularity().fit(TRAIN), "d", **FIT)
    fits.share(home, fit)
    damage(s3, home, "models/popularity/d/item_degrees.npy")
    assert fits.find(worker, "popularity", "d") is None
    with pytest.raises(
        manifest.Damaged, match=r"s3://.*/models/popularity/d: is not there, or not whole; run the same"
    ):
        fits.load(worker, "popularity", "d")
    fits.share(home, fit)
    assert fits.find(worker, "popularity", "d") == fit


def test_a_record_that_names_a_place_outside_of_its_folder_is_refused(s3, home, worker, stored):
    there, name = place(s3, home, f"matrices/{stored}"), "../../outside"
    facts, _ = manifest.parsed(s3.files.cat_file(f"{there}/split.json").decode(), there)
    s3.files.pipe_file(f"{there}/{name}", b"anything")
    digest = hashlib.sha256(b"anything").hexdigest()
    s3.files.pipe_file(f"{there}/split.json", manifest._text(facts, {name: digest}).encode())
    with pytest.raises(manifest.Damaged):
        matrices.read(worker, stored)
    assert not list(worker.root.rglob("outside"))


def test_what_is_damaged_here_is_fetched_anew(home, worker, stored):
    for one in (home, worker):
        matrices.read(one, stored)
        (one.matrices / stored / "items.npy").write_bytes(b"")
        assert len(matrices.read(one, stored).items) == 30


@pytest.mark.parametrize(("first", "end"), [(0, 200), (0, 1), (50, 120), (199, 200)])
def test_rows_are_those_of_the_matrix_wherever_it_lies(home, worker, stored, first, end):
    for one in (replace(home, store=None), home, worker):
        found = StoredRows(one, stored)(first, end)
        assert found.shape == (end - first, 30) and (found != TRAIN[first:end]).nnz == 0
        assert (found.indices.dtype, found.data.dtype) == (np.int32, np.float32)


def test_a_worker_gets_the_row_blocks_of_its_users_alone(s3, home, worker, stored):
    users = manifest.facts(home.matrices / stored, matrices.RECORD)["rows"]["users"]
    assert len(users) == 8
    StoredRows(worker, stored)(users[2], users[4])
    (folder,) = row_blocks.cached(worker)
    names = {f"{name}-{number}" for name in row_blocks.ARRAYS for number in (2, 3)}
    assert {file.name for file in folder.iterdir()} == names | {"split.json"}
    assert not worker.matrices.exists()


@pytest.mark.parametrize("away", [True, False], ids=["at the url", "in a folder"])
def test_a_damaged_row_block_is_found_by_whose_it_is(s3, home, worker, stored, away):
    last = (home.matrices / stored / "train_counts.npy").stat().st_size - 1
    if away:
        damage(s3, home, f"matrices/{stored}/train_counts.npy", last)
    else:
        worker = replace(home, store=None)
        with (home.matrices / stored / "train_counts.npy").open("r+b") as file:
            file.seek(last)
            file.write(b"\x7f")
    rows = StoredRows(worker, stored)
    assert rows(0, 20).shape == (20, 30)
    with pytest.raises(manifest.Damaged, match=r"row block 6"):
        rows(190, 200)
    if away:
        matrices.share(home, [stored])
        assert (rows(190, 200) != TRAIN[190:]).nnz == 0


def test_matrices_of_an_earlier_version_have_no_row_blocks_and_give_rows(home, worker, stored):
    folder = home.matrices / stored
    facts = manifest.facts(folder, matrices.RECORD)
    del facts["rows"]
    manifest.seal(folder, matrices.RECORD, facts)
    matrices.share(home, [stored])
    assert (StoredRows(worker, stored)(3, 9) != TRAIN[3:9]).nnz == 0


def test_the_url_keeps_what_the_home_keeps(home, stored):
    fits.share(home, fits.keep(home, Popularity().fit(TRAIN), "d", **FIT))
    kept = {"models/popularity/d", f"matrices/{stored}"}
    assert remote.places(home) == kept
    remote.drop_others(home, {"models/popularity/d"})
    assert remote.places(home) == {"models/popularity/d"}


def test_a_cache_keeps_what_is_of_matrices_at_the_url(home, worker, stored):
    fits.keep(worker, Popularity().fit(TRAIN), "d", **FIT | {"matrices": stored})  # and could not be put
    fits.keep(worker, Popularity().fit(TRAIN), "e", **FIT)
    fits.checkpoints(worker, "popularity", "f").mkdir()
    StoredRows(worker, stored)(0, 1)
    matrices.read(worker, stored)
    retention.tidy_cache(worker)
    assert [folder.name for folder in (worker.models / "popularity").iterdir()] == ["d"]
    assert row_blocks.cached(worker) and (worker.matrices / stored).exists()
    remote.drop_others(home, set())
    retention.tidy_cache(worker)
    assert not row_blocks.cached(worker) and not list(worker.matrices.iterdir()) and not list(worker.models.glob("*/*"))


def here(function, *arguments):
    """Every worker that is there: this process."""
    function(*arguments)


def test_a_shelf_at_the_url_keeps_arrays_while_a_fit_goes_on(s3, home):
    run_at_url.begin(home, "mark")
    with run_at_url.shelves(home, here)("wmf") as shelf:
        shelf.write("a", {"x": np.arange(3.0), "y": np.eye(2)})
        shelf.write("b", {"x": np.arange(2.0)})
        found = shelf.read("a")
        assert set(found) == {"x", "y"} and np.array_equal(found["x"], np.arange(3.0))
        shelf.remove("b")
        shelf.remove("b")
        with pytest.raises(FileNotFoundError, match=r"s3://.*/b.npz: not there"):
            shelf.read("b")
        damage(s3, home, f"{shelf.place}/a.npz", at=-200)
        with pytest.raises(manifest.Damaged, match=r"s3://.*/a.npz: is damaged"):
            shelf.read("a")
    assert [name.rpartition("/")[2] for name in s3.names() if "/spill/" in name] == ["mark"]
    assert run_at_url.sees(home, "mark") and not run_at_url.sees(home, "another")
    run_at_url.begin(home, "next")  # clears what a run before left
    assert not run_at_url.sees(home, "mark")
    run_at_url.end(home, "next")
    assert not run_at_url.sees(home, "next")


class Apart:
    """Every call is made by two workers, one after the other, each with a cache of its own; the last one answers."""

    def __init__(self, folder):
        self.caches, self.holding = [folder / name for name in ("one", "another")], 0

    def map(self, function, calls):
        for cache in self.caches:
            remote.work_in(cache)
            answers = [function(*call) for call in calls]
        remote.work_in(None)
        self.holding = max(self.holding, len({file.parent for file in self.kept() if file.name.startswith("columns.")}))
        return answers

    def everywhere(self, function, *arguments):
        for cache in self.caches:
            remote.work_in(cache)
            function(*arguments)
        remote.work_in(None)

    def kept(self):
        return [file for cache in self.caches for file in cache.rglob("*") if file.is_file()]


@pytest.fixture
def joined(home):
    """A shelf with an array of two parts, as the coordinator has it."""
    parts = ["run-0-sums.float64", "run-1-sums.float64"]
    with run_at_url.shelves(home, here)("slim") as shelf:
        for first, name in zip((0, 10), parts, strict=True):
            shelf.write_flat({name: np.arange(at, at + 5.0)} for at in (first, first + 5))
        shelf.join("sums.float64", parts)
        yield shelf


def test_flat_arrays_are_got_once_and_joined_by_whoever_maps_them(s3, home, worker, joined):
    of_worker = replace(joined, home=worker)
    found = of_worker.flat("sums.float64")
    np.testing.assert_array_equal(found, np.arange(20.0))
    assert not found.flags.writeable
    of_worker.write_flat([{"none.int32": np.zeros(0, np.int32)}])
    assert len(joined.flat("none.int32")) == 0
    (folder,) = (worker.spill / "shelves").iterdir()
    assert [file.name for file in folder.iterdir()] == ["sums.float64"]
    s3.files.rm(place(s3, home, joined.place), recursive=True)
    np.testing.assert_array_equal(of_worker.flat("sums.float64"), np.arange(20.0))
    retention.tidy_cache(worker)
    assert not folder.exists()


def test_a_large_array_travels_in_parts(home, worker, joined, monkeypatch):
    monkeypatch.setattr(shelf_at_url, "AT_ONCE", 5 << 20)  # the least that S3 takes for a part
    large = np.arange(1_500_000.0)
    joined.write_flat([{"large.float64": large}])
    np.testing.assert_array_equal(replace(joined, home=worker).flat("large.float64"), large)


@pytest.mark.parametrize("name", ["run-1-sums.float64", "sums.float64.json"])
def test_damage_to_a_flat_array_is_told_with_its_place(s3, home, worker, joined, name):
    of_worker, there = replace(joined, home=worker), place(s3, home, f"{joined.place}/{name}")
    damage(s3, home, f"{joined.place}/{name}", at=0)
    with pytest.raises(manifest.Damaged, match=rf"s3://.*/spill/slim-.*/{name}: is damaged .*begins this fit again"):
        of_worker.flat("sums.float64")
    s3.files.rm_file(there)
    with pytest.raises(FileNotFoundError, match=rf"s3://.*/spill/slim-.*/{name}: not there; nobody may delete"):
        of_worker.flat("sums.float64")
    assert not list(worker.spill.rglob("sums*"))


def test_a_bucket_that_is_not_there_is_told_before_a_run(home):
    with pytest.raises(InputError, match=r"--store s3://no-such-bucket/x: cannot be used .*bucket does not exist"):
        run_at_url.begin(replace(home, store="s3://no-such-bucket/x"), "mark")


def test_a_bucket_that_goes_is_told_with_what_to_do(s3, home, stored):
    gone = replace(home, store="s3://no-such-bucket/x")
    with pytest.raises(StoreLost, match=r"s3://no-such-bucket/x: cannot be used .*the same command goes on"):
        matrices.share(gone, [stored])
    with pytest.raises(StoreLost, match="no-such-bucket"), run_at_url.shelves(gone, here)("wmf") as shelf:
        shelf.write("a", {})
    remote.drop_others(gone, set())  # at the end of a run, which has published: said, no more


def test_a_package_that_is_not_installed_is_named(home, monkeypatch):
    absent = {"class": "no_such_module.FileSystem", "err": "Install s3fs to access S3"}
    monkeypatch.setitem(known_implementations, "absent", absent)
    with pytest.raises(InputError, match=r"--store absent://bucket/x: Install s3fs .* run .*pip install .*\[s3\]"):
        run_at_url.begin(replace(home, store="absent://bucket/x"), "mark")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/prefix", "write it as s3://BUCKET/PREFIX"),
        ("s3://", "write it as s3://BUCKET/PREFIX"),
        ("ftp://me:secret@host/x", "has a password in it"),
    ],
)
def test_a_url_that_is_none_is_refused(url, message):
    with pytest.raises(InputError, match=message) as refused:
        urls.check(url)
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_a_protocol_that_nobody_knows_is_told(home):
    with pytest.raises(InputError, match=r"--store nowhere://x/y: Protocol not known"):
        run_at_url.begin(replace(home, store="nowhere://x/y"), "mark")
