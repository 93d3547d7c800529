"""A power cut at every moment of a small run's writes: what is left of the home is the old state or the new, whole.

A file system may lose whatever was not synced: the data of a file, and the entries of a folder, each independently. The
disk is modelled so: a file has the content of its last `fsync`, or none; a folder the entries of its last `fsync`; or
either has what the run has written meanwhile.
"""

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.popularity import Popularity
from oneclass.tasks import report
from oneclass.tasks.ingest import landing
from oneclass.tasks.stores import checksums, fits, matrices, publications, published_model
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from tests.conftest import make_current

GRAPH = csr_matrix(np.array([[1, 1, 0], [1, 0, 2], [0, 0, 1]], dtype=np.float32))
USERS = np.arange(3, dtype=np.int32)
EVENTS = {"os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir"}  # before each there is a moment
MIXTURES = 6  # of lost and written parts, at every moment
Tree = dict[str, bytes | str | None]
"""By relative path: a file's bytes, a link's target, or None of a folder."""
_moment: list[Callable[[], None]] = []
sys.addaudithook(lambda event, _: _moment[-1]() if _moment and event in EVENTS else None)  # no hook can be removed


@dataclass
class Disk:
    """What surely is on the disk, by inode, of everything below `root`; and the trees that a cut may leave."""

    root: Path
    data: dict[int, bytes] = field(default_factory=dict)
    entries: dict[int, dict[str, int | str]] = field(default_factory=dict)
    trees: dict[str, tuple[int, Tree]] = field(default_factory=dict)
    moments: int = 0
    promises: list[Callable[[Home], None]] = field(default_factory=list)
    generator: random.Random = field(default_factory=lambda: random.Random(0))

    def draw(self, share: float) -> bool:
        return self.generator.random() < share

    def sync(self, path: str) -> None:
        status = os.stat(path)
        if os.path.isdir(path):
            self.entries[status.st_ino] = self.entries_now(path)
        else:
            self.data[status.st_ino] = Path(path).read_bytes()

    def entries_now(self, folder: str) -> dict[str, int | str]:
        with os.scandir(folder) as found:
            return {one.name: os.readlink(one) if one.is_symlink() else one.inode() for one in found}

    def cut(self) -> None:
        """Note the trees that a power cut at this moment may leave."""
        self.moments += 1
        files, folders = {}, {self.root.stat().st_ino: self.entries_now(str(self.root))}
        for path in self.root.rglob("*"):
            inode = path.lstat().st_ino
            if path.is_dir() and not path.is_symlink():
                folders[inode] = self.entries_now(str(path))
            elif not path.is_symlink():
                files[inode] = path.read_bytes()
        for share_of_data, share_of_names in [(0, 0), (0, 1), (1, 0), (1, 1), *[(0.5, 0.5)] * MIXTURES]:
            keep_data = partial(self.draw, share_of_data)
            keep_names = partial(self.draw, share_of_names)
            tree = self.assemble(files, folders, keep_data, keep_names)
            self.trees.setdefault(repr(sorted(tree.items())) + str(len(self.promises)), (len(self.promises), tree))

    def assemble(self, files: dict, folders: dict, keep_data: Callable, keep_names: Callable) -> Tree:
        tree: Tree = {}
        contents: dict[int, bytes] = {}
        visited: dict[str, int] = {}

        def place(entry: int | str, path: str) -> None:
            if isinstance(entry, str):
                tree[path] = entry
            elif entry in folders or entry in self.entries:
                tree[path] = None
                visit(entry, f"{path}/")
            else:
                if entry not in contents:
                    written = files.get(entry) if keep_data() else None
                    contents[entry] = self.data.get(entry, b"") if written is None else written
                tree[path] = contents[entry]

        def visit(inode: int, where: str) -> None:
            visited[where] = inode
            names = folders[inode] if inode in folders and keep_names() else self.entries.get(inode, {})
            for name, entry in names.items():
                place(entry, f"{where}{name}")

        visit(self.root.stat().st_ino, "")
        # A rename to another folder does not lose a file whose two folders differ in what they kept: journals write
        # both at once.
        for where, inode in list(visited.items()):
            for name, entry in self.entries.get(inode, {}).items():
                if entry in files and entry not in contents:
                    place(entry, f"{where}{name}")
        return tree


@contextlib.contextmanager
def record_syncs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Record the syncs and the moments of the block; all that is there before is on the disk."""
    disk, fsync = Disk(root), os.fsync
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            disk.sync(str(path))

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if (path := os.readlink(f"/proc/self/fd/{descriptor}")).startswith(str(root)):
            disk.sync(path)
            at_moment()

    def at_moment() -> None:
        _moment.append(lambda: None)  # what the recorder itself does is no moment
        disk.cut()
        _moment.pop()

    monkeypatch.setattr(os, "fsync", synced)
    _moment.append(at_moment)
    yield disk
    disk.cut()
    _moment.clear()


def put_tree(tree: Tree, root: Path) -> None:
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        elif isinstance(content, str):
            (root / path).symlink_to(content)
        else:
            (root / path).write_bytes(content)


def store_split_and_fit(home: Home, number: int) -> tuple[str, str]:
    """Store a split and a fit on it; return their digests."""
    part = Part(GRAPH, GRAPH, USERS)
    split = SplitMatrices("given", GRAPH, USERS, USERS, {"test": part}, {"users": 3, "items": 3, "digest": str(number)})
    digest = matrices.store_split(home, split)
    made = {"key": "k", "matrices": digest, "seconds": 1.0, "peak_bytes": 7}
    fit = fits.store_fit(home, Popularity(threads=1).fit(GRAPH), str(number) * 16, **made)
    return digest, fit.digest


def publish_run(home: Home, run_id: str, digest: str, fit: str) -> None:
    folder = publications.create_publication(home, run_id)
    for name in (publications.DATABASE_FILE, "evaluation.md"):
        (folder / name).write_text(f"{name} of {run_id}")
    published_model.write_published_model(
        folder,
        fits={"fit": fits.fit_folder(home, "popularity", fit)},
        matrices=home.matrices / digest,
        tables={
            "items": pl.DataFrame({"item_id": ["a", "b", "c"]}),
            "users": pl.DataFrame({"user_id": ["x", "y", "z"]}),
            "item_attributes": pl.DataFrame({"item_id": ["a"], "stock": [1]}),
        },
        descriptions={"recommends": {"model": "popularity", "score": "score", "digest": fit}},
    )
    make_current(home, folder, fits=[["popularity", fit]])


def published_run(home: Home) -> str:
    return checksums.load_checked_facts(home.published.resolve(), "manifest.json")["run_id"]


def check_readers(home: Home) -> None:
    """What readers may open is whole: the publication, and each fit, split, page and log under its final name."""
    assert published_run(home) in ("old", "new")
    for folder in (*home.models.glob("*/*"), *home.matrices.glob("*")):
        if not folder.name.startswith("partial-"):
            checksums.load_checked_facts(folder, fits.RECORD_FILE if "models" in str(folder) else matrices.RECORD_FILE)
    if (page := home.report / "index.html").exists():
        assert page.read_text() == "the page"
    logs = [path for path in home.landing.rglob("log.csv")]
    assert [path.read_text() for path in logs] in (["a,b\n"], ["a,b\n"] * 2)


def test_a_power_cut_at_any_moment_leaves_the_old_state_or_the_new_one(home, tmp_path, monkeypatch):
    publish_run(home, "old", *store_split_and_fit(home, 1))
    home.landing.mkdir()
    log = home.landing / "log.csv"
    log.write_text("a,b\n")
    home.report.mkdir()
    with record_syncs(home.folder, monkeypatch) as disk:
        digest, fit = store_split_and_fit(home, 2)
        disk.promises.append(lambda left: fits.load_fit(left, "popularity", fit) and matrices.load_split(left, digest))
        publish_run(home, "new", digest, fit)
        disk.promises.append(lambda left: published_run(left) == "new" or pytest.fail("the old one is published again"))
        report._write(home.report / "index.html", "the page")
        disk.promises.append(lambda left: (left.report / "index.html").stat())
        landing.quarantine_files(home, [landing.FileRefused(log, "is broken")])
        disk.promises.append(lambda left: (left.landing / "quarantine" / "log.csv.why.txt").read_text().index("broken"))
        disk.promises.append(lambda left: (left.landing / "quarantine" / "log.csv").stat())
    for number, (kept, tree) in enumerate(disk.trees.values()):
        left = Home(tmp_path / str(number), home.dataset, home.limits)
        left.folder.mkdir(parents=True)
        put_tree(tree, left.folder)
        check_readers(left)
        for promise in disk.promises[:kept]:
            promise(left)
    assert disk.moments > 60 and len(disk.trees) > 60
