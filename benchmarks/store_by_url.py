"""What it costs that the users of a fit by blocks are read from and put at a URL in every call, beside a folder.

    python -m benchmarks.store_by_url [--edges 1000000] [--fit wmf random_graph] [--blocks 4] [--passes 5]

The graph is the demo's own. The URL is of the S3 protocol, by a moto server on the loopback interface, whose CPU seconds
are its own; a folder is among the temporary ones. Everything else runs in this process and on one thread. CPU seconds are
of the quickest pass after the first. Needs `.[test]`.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from scipy.sparse import csr_matrix

from benchmarks.posted import head, row
from benchmarks.random_graph import demo_graph
from models.catalogue import MODELS
from models.fitting import Epoch, FitOptions, Shelf, Shelves
from models.folder_shelf import folder_in
from tasks.stores import run_at_url
from tasks.stores.home import Home
from tests.s3_server import started


@dataclass
class Weighed:
    """A shelf that counts what is read of it and written to it.

    Attributes:
        calls: reads, writes and removals.
        read_bytes, written_bytes: of the arrays.
    """

    shelf: Shelf
    calls: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def read(self, name: str) -> dict[str, np.ndarray]:
        found = self.shelf.read(name)
        self.calls, self.read_bytes = self.calls + 1, self.read_bytes + _bytes(found)
        return found

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        self.shelf.write(name, arrays)
        self.calls, self.written_bytes = self.calls + 1, self.written_bytes + _bytes(arrays)

    def remove(self, name: str) -> None:
        self.shelf.remove(name)
        self.calls += 1


def _bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def fitted(matrix: csr_matrix, name: str, shelves: Shelves, server: psutil.Process, given: argparse.Namespace) -> list:
    """The quickest pass after the first: CPU seconds of the fit and of the server, calls, MB read and MB written."""
    settings = MODELS[name].Settings(blocks=given.blocks, iterations=given.passes)
    seen: list[tuple] = []

    @contextmanager
    def weighed(model: str) -> Iterator[Weighed]:
        nonlocal shelf
        with shelves(model) as inner:
            shelf = Weighed(inner)
            yield shelf

    def end(_: Epoch) -> None:
        of_server = sum(server.cpu_times()[:2])
        counted = shelf.calls, shelf.read_bytes / 1e6, shelf.written_bytes / 1e6
        seen.append((time.process_time(), of_server, *counted))

    shelf: Weighed
    MODELS[name](settings).fit(matrix, FitOptions(scratch=weighed, on_epoch=end))
    return min(np.diff(seen, axis=0).tolist())


def nobody(*_: object) -> None:
    """There are no workers that would keep anything."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--fit", nargs="+", default=["wmf", "random_graph"], help="models that have `iterations`")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--passes", type=int, default=5)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins")
    matrix = demo_graph(given.edges // 40, given.items, given.edges, 1)
    print(f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges, {given.blocks} blocks")
    head("model", "users lie", "a pass, CPU s", "the server, CPU s", "calls", "read, MB", "written, MB")
    with tempfile.TemporaryDirectory() as place, started(Path(place)) as moto:
        home, server = Home(Path(place) / "home", "demo", store=moto.url), psutil.Process(moto.process.pid)
        kinds = {"in a folder": partial(folder_in, Path(place)), "at the URL": run_at_url.shelves(home, nobody)}
        for name in given.fit:
            for where, shelves in kinds.items():
                seconds, of_server, calls, *sizes = fitted(matrix, name, shelves, server, given)
                sizes = (f"{size:.2f}" for size in sizes)
                row(name, where, f"{seconds:.2f}", f"{of_server:.2f}", f"{calls:.0f}", *sizes)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
