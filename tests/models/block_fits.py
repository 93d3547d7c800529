"""What the tests of fits by blocks share: workers of several kinds, rows that lie in files, and how fits are
compared.
"""

import os
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.evaluation.metrics import average_over_users, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import FitOptions, Start


def shorten_phases(monkeypatch, *, t_tau=4, t_epsilon=6, bound_every=3):
    """Let precisions be learned and steps shrink early in the short fits of tests, which evaluate the bound often."""
    monkeypatch.setattr("oneclass.models.random_graph.inference.T_EPSILON", t_epsilon)
    monkeypatch.setattr("oneclass.models.random_graph.model.T_EPSILON", t_epsilon)
    for module in ("model", "settings"):
        monkeypatch.setattr(f"oneclass.models.random_graph.{module}.T_TAU", t_tau)
        monkeypatch.setattr(f"oneclass.models.random_graph.{module}.BOUND_EVERY", bound_every)


def assert_same_bits(one, other):
    for name, array in one._arrays().items():
        assert np.array_equal(array, other._arrays()[name]), name


def assert_close(one, other, within):
    """Every fitted array within a share of its largest value."""
    for name, array in one._arrays().items():
        worst = np.abs(array - other._arrays()[name]).max()
        assert worst <= within * np.abs(array).max(), (name, worst)


def assert_begins_at_an_earlier_fit(fitted, matrix, within, **settings):
    """From a fit of fewer users a fit by blocks comes to where one machine's does."""
    first, rows = fitted(matrix[:200]), np.arange(300)
    start = Start(first, np.where(rows < 190, rows, -1), np.arange(120))
    one, many = (fitted(matrix, blocks=of, options=FitOptions(start=start), **settings) for of in (1, 4))
    assert_close(one, many, within)


def assert_scores_serve_inside(model, matrix):
    """What a callback is given after the last pass is what the fitted model gives."""
    seen = []

    def look(epoch):
        seen.append([model.scores(matrix[:9], users=users) for users in (None, np.arange(9))])

    model.fit(matrix, FitOptions(on_epoch=look))
    for users, last in zip((None, np.arange(9)), seen[-1], strict=True):
        np.testing.assert_array_equal(last, model.scores(matrix[:9], users=users))


class Backwards:
    """Every call twice, the last one first."""

    def map(self, function, calls):
        for call in calls:
            function(*call)
        return [function(*call) for call in reversed(calls)][::-1]


class Processes:
    """Two processes; one is killed in the middle of the fit, and a third makes the calls of that time again.

    Attributes:
        killed_at: the times that calls are asked for, counted from 1, in which one is killed.
    """

    def __init__(self, *killed_at):
        self.pool, self.asked, self.killed, self.killed_at = self._of(2), 0, 0, killed_at or (9,)

    def _of(self, count):
        return ProcessPoolExecutor(count, mp_context=get_context("spawn"))

    def map(self, function, calls):
        self.asked += 1
        try:
            answers = [self.pool.submit(function, *call) for call in calls]
            if self.asked in self.killed_at:
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


def draw_counts(matrix):
    """Counts 1 to 4, a user and an item without an edge."""
    counts = matrix.toarray() * np.random.default_rng(1).integers(1, 5, matrix.shape)
    counts[7], counts[:, 11] = 0, 0
    return csr_matrix(counts.astype(np.float32))


def evaluate_score(model, train, targets, score=None):
    """The metrics of the users' targets by one score of a model that was fitted on `train`."""
    scores = model.scores(train, users=np.arange(train.shape[0]), score=score)
    return average_over_users(compute_user_metrics(rank_targets(scores, train, targets)))


def held_out(likes):
    """One edge of every user apart."""
    ones = np.ones(likes.shape[0], dtype=np.int64)
    return split_matrix(likes, choose_held_out_edges(likes, ones, 1, *(np.arange(count) for count in likes.shape)))
