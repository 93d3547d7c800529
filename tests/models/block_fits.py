"""Workers of several kinds, rows that lie in files, and logs, for the tests of fits by blocks."""

import os
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from scipy.sparse import csr_matrix


def shorten_phases(monkeypatch, *, t_tau=4, t_epsilon=6, bound_every=3):
    """Let precisions be learned and steps shrink early in the short fits of tests, which evaluate the bound often."""
    monkeypatch.setattr("oneclass.models.random_graph.inference.T_EPSILON", t_epsilon)
    monkeypatch.setattr("oneclass.models.random_graph.model.T_EPSILON", t_epsilon)
    monkeypatch.setattr("oneclass.models.random_graph.model.T_TAU", t_tau)
    monkeypatch.setattr("oneclass.models.random_graph.model.BOUND_EVERY", bound_every)


class Backwards:
    """Every call twice, the last one first."""

    def map(self, function, calls):
        for call in calls:
            function(*call)
        return [function(*call) for call in reversed(calls)][::-1]


class Processes:
    """Two processes; one is killed in the middle of the fit, and a third makes the calls of that time again."""

    def __init__(self):
        self.pool, self.asked, self.killed = self._of(2), 0, 0

    def _of(self, count):
        return ProcessPoolExecutor(count, mp_context=get_context("spawn"))

    def map(self, function, calls):
        self.asked += 1
        try:
            answers = [self.pool.submit(function, *call) for call in calls]
            if self.asked == 9:
                answers[0].result()
                os.kill(next(iter(self.pool._processes)), signal.SIGKILL)
            return [answer.result() for answer in answers]
        except BrokenProcessPool:
            self.pool, self.killed = self._of(1), self.killed + 1
            return self.map(function, calls)


@dataclass(frozen=True)
class Shelf:
    """Rows of a matrix that lies in files."""

    folder: str

    def __call__(self, first, end):
        starts, items, width = (
            np.load(f"{self.folder}/{name}.npy", mmap_mode="r") for name in ("starts", "items", "width")
        )
        starts, items = starts[first : end + 1], items[starts[first] : starts[end]]
        return csr_matrix((np.ones(len(items)), np.array(items), starts - starts[0]), shape=(end - first, int(width)))


def store_rows(matrix, folder):
    for name, array in (("starts", matrix.indptr), ("items", matrix.indices), ("width", np.array(matrix.shape[1]))):
        np.save(folder / f"{name}.npy", array)
    return Shelf(str(folder))


class Scales:
    """Calls are made here; what each takes and gives is weighed."""

    def __init__(self):
        self.taken, self.given = [], []

    def map(self, function, calls):
        answers = [function(*call) for call in calls]
        self.taken += [len(pickle.dumps(call)) for call in calls]
        self.given += [len(pickle.dumps(answer)) for answer in answers]
        return answers


def plant_traits(users, items=150, seed=0):
    """Three planted traits and a long tail of popularity; about a tenth of all pairs are edges."""
    rng = np.random.default_rng(seed)
    odds = 1.3 * rng.normal(size=(users, 3)) @ rng.normal(size=(3, items)) - np.log(np.arange(1, items + 1)) - 0.5
    likes = rng.random((users, items)) < 1 / (1 + np.exp(-odds))
    likes[likes.sum(axis=1) < 2, :2] = True
    return csr_matrix(likes.astype(np.float32))
