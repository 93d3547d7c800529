"""Damage to stored files, of every kind and to every file: it is seen, named, and what was damaged is made anew."""

import os

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.popularity import Popularity
from oneclass.tasks.stores import checksums, fits, matrices
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from tests.conftest import flip_bit

GRAPH = csr_matrix(np.array([[1, 1, 0], [1, 0, 2], [0, 0, 1]], dtype=np.float32))
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


def forbid_reading(file):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    file.chmod(0)


DAMAGES = {
    "flipped": flip_bit,
    "flipped at the same time": flip_at_the_same_time,
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "removed": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "folder": into_folder,
    "forbidden": forbid_reading,
    "overwritten": lambda file: file.write_text('{"facts": {}, "files"' if file.suffix == ".json" else "[]"),
    "another beside it": lambda file: (file.parent / f"more-{file.name}").write_bytes(b"more"),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def read_bytes(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def keep_fits(home):
    made = {"key": "k", "matrices": "m", "seconds": 1.5, "peak_bytes": 7}
    return fits.store_fit(home, Popularity(threads=1).fit(GRAPH), "a" * 16, **made)


STORES = {
    "fit": (keep_fits, lambda home, fit: fits.load_fit(home, "popularity", fit.digest), 3),
    "matrices": (lambda home: matrices.store_split(home, SPLIT), matrices.load_split, 20),
}


@pytest.mark.parametrize("store", [pytest.param("fit"), pytest.param("matrices", marks=pytest.mark.slow)])
@every_damage
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


def test_of_parts_that_are_not_wanted_no_file_is_opened(home):
    digest = matrices.store_split(home, SPLIT)
    flip_bit(home.matrices / digest / "test_targets_indices.npy")
    assert matrices.load_split(home, digest, parts=["validation"]).parts.keys() == {"validation"}
    with pytest.raises(checksums.DamagedFile):
        matrices.load_split(home, digest)


def test_a_file_is_hashed_once_while_it_stays_as_it_is(home, monkeypatch):
    fit = keep_fits(home)
    monkeypatch.setattr(checksums.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert fits.find_fit(home, "popularity", fit.digest) == fit
    fits.load_fit(home, "popularity", fit.digest)


def test_every_byte_of_a_record_counts(home):
    fit = keep_fits(home)
    file = home.models / "popularity" / fit.digest / "fit.json"
    whole = file.read_bytes()
    for place in range(len(whole)):
        bit = 1 << place % 8
        file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with pytest.raises(checksums.DamagedFile):
            checksums.load_checked_facts(file.parent, file.name)
