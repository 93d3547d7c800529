"""Calls that are pickled and read back as if they went to another process, rows that lie in files, and rows of a
table.
"""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*names: str) -> None:
    print()
    row(*names)
    row(*["---"] * len(names))


@dataclass
class Posted:
    """Calls are made here, but they and their answers are pickled and read back.

    Attributes:
        taken, given: bytes of the calls, and of the answers.
        work: seconds within each call.
    """

    taken: int = 0
    given: int = 0
    work: list[float] = field(default_factory=list)

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        answers = []
        for call in calls:
            sent = pickle.dumps(call, protocol=5)
            call, began = pickle.loads(sent), time.process_time()
            answer = function(*call)
            self.work.append(time.process_time() - began)
            back = pickle.dumps(answer, protocol=5)
            answers.append(pickle.loads(back))
            self.taken, self.given = self.taken + len(sent), self.given + len(back)
        return answers


@dataclass(frozen=True)
class Shelf:
    """Rows of the matrix in a folder."""

    folder: Path

    def __call__(self, first: int, end: int) -> csr_matrix:
        starts, items = (np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "items"))
        columns, starts = np.array(items[starts[first] : starts[end]]), np.array(starts[first : end + 1])
        ones = np.broadcast_to(np.int8(1), len(columns))
        return csr_matrix((ones, columns, starts - starts[0]), shape=(end - first, np.load(self.folder / "width.npy")))


def shelved(matrix: csr_matrix, folder: Path) -> Shelf:
    folder.mkdir(exist_ok=True)
    np.save(folder / "starts.npy", matrix.indptr)
    np.save(folder / "items.npy", matrix.indices)
    np.save(folder / "width.npy", matrix.shape[1])
    return Shelf(folder)
