"""In-process workers whose calls are pickled as if sent, rows in files, and rows of a Markdown table."""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_head(*names: str) -> None:
    """Print the head of a Markdown table."""
    print()
    print_row(*names)
    print_row(*["---"] * len(names))


@dataclass
class PickledCalls:
    """Run calls in this process, but pickle and unpickle them and their results.

    Attributes:
        sent, received: bytes of the calls and of the results.
        cpu_seconds: of each call.
    """

    sent: int = 0
    received: int = 0
    cpu_seconds: list[float] = field(default_factory=list)

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        results = []
        for call in calls:
            pickled_call = pickle.dumps(call, protocol=5)
            arguments, began = pickle.loads(pickled_call), time.process_time()
            result = function(*arguments)
            self.cpu_seconds.append(time.process_time() - began)
            pickled_result = pickle.dumps(result, protocol=5)
            results.append(pickle.loads(pickled_result))
            self.sent, self.received = self.sent + len(pickled_call), self.received + len(pickled_result)
        return results


@dataclass(frozen=True)
class FolderRows:
    """Load rows of a matrix of ones from a folder."""

    folder: Path

    def __call__(self, first: int, end: int) -> csr_matrix:
        starts, items = (np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "items"))
        columns, starts = np.array(items[starts[first] : starts[end]]), np.array(starts[first : end + 1])
        ones = np.broadcast_to(np.int8(1), len(columns))
        return csr_matrix((ones, columns, starts - starts[0]), shape=(end - first, np.load(self.folder / "width.npy")))


def store_rows(matrix: csr_matrix, folder: Path) -> FolderRows:
    """Store a matrix of ones in a folder."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "starts.npy", matrix.indptr)
    np.save(folder / "items.npy", matrix.indices)
    np.save(folder / "width.npy", matrix.shape[1])
    return FolderRows(folder)
