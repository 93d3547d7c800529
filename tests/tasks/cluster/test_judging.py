"""The evaluation in calls, whoever makes them: the tables of a plain run that is not cut, row for row and bit for bit."""

import pickle
import random

import pytest

from oneclass.tasks import cluster as clusters
from oneclass.tasks.cluster import LOCAL, ClusterSettings
from oneclass.tasks.stores.home import Home, Limits
from tests.tasks.cluster.judged_demo import SHORT, evaluated, in_small_calls, prepared

pytestmark = pytest.mark.slow


class InAnyOrder:
    """Runs every waiting call when a result is asked for, in a drawn order, and that one again; all of it is pickled."""

    def __init__(self, seed):
        self.random, self.submitted, self.run = random.Random(seed), [], 0

    def submit(self, function, *arguments, label, memory):
        assert memory > 0
        self.submitted.append(pickle.dumps((function, arguments)))
        return LOCAL.submit(self.answer, len(self.submitted) - 1)

    def answer(self, number):
        waiting = list(range(self.run, len(self.submitted)))
        self.random.shuffle(waiting)
        self.run = len(self.submitted)
        for one in [*waiting, number]:
            function, arguments = pickle.loads(self.submitted[one])
            answer = pickle.dumps(function(*arguments))
        return pickle.loads(answer)


class KillsOne:
    """An executor that kills a worker, with all that it has computed, before the given result is waited for."""

    def __init__(self, executor, worker, before):
        self.executor, self.worker, self.before = executor, worker, before
        self.asked, self.labels = 0, []

    def submit(self, *call, label, **more):
        self.labels.append(label)
        return LOCAL.submit(self.answer, self.executor.submit(*call, label=label, **more))

    def answer(self, call):
        self.asked += 1
        if self.asked == self.before:
            self.worker.kill()
            self.worker.wait()
        return call.result()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("demo"), "demo", Limits(threads=2, memory=1 << 30))
    digests = prepared(home)
    return home, digests, evaluated(home, digests)


def test_the_tables_do_not_depend_on_the_cut_nor_on_the_order_of_the_calls(demo, monkeypatch):
    home, digests, whole = demo
    assert all(whole.values())
    in_small_calls(monkeypatch)
    assert evaluated(home, digests) == whole
    executor = InAnyOrder(1)
    assert evaluated(home, digests, executor=executor) == whole
    assert len(executor.submitted) == len(SHORT) * (8 + 1 + 1)  # of 295, 30 and 32 users, by 40


def test_two_workers_one_of_which_is_killed_judge_as_a_plain_run(own_cluster, demo, monkeypatch):
    home, digests, plain = demo
    in_small_calls(monkeypatch)
    killed = own_cluster.worker()
    own_cluster.worker()
    with clusters.open_executor(ClusterSettings(address=own_cluster.address), home) as executor:
        executor = KillsOne(executor, killed, before=4)
        assert evaluated(home, digests, executor=executor) == plain
    assert killed.poll() is not None
    for name in SHORT:
        assert executor.labels.count(f"{name}: judge on leave_one_out") > 2
