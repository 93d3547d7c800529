"""The evaluation in calls, whoever makes them: the tables of a plain run that is not cut, row for row and bit for bit."""

import pickle
import random
from functools import partial

import pytest

from tasks import cluster as clusters
from tasks.cluster import ClusterSettings
from tasks.stores.home import Home, Limits
from tests.tasks.cluster.judged_demo import SHORT, evaluated, in_small_calls, prepared

pytestmark = pytest.mark.slow


class InAnyOrder:
    """Every call that waits is made when an answer is asked for, in a drawn order, and that one again; all of it is pickled."""

    def __init__(self, seed):
        self.random, self.asked, self.made = random.Random(seed), [], 0

    def begin(self, what, function, home, *arguments, memory=0):
        assert memory > 0
        self.asked.append(pickle.dumps((function, home, arguments)))
        return partial(self.answer, len(self.asked) - 1)

    def answer(self, number):
        waiting = list(range(self.made, len(self.asked)))
        self.random.shuffle(waiting)
        self.made = len(self.asked)
        for one in [*waiting, number]:
            function, home, arguments = pickle.loads(self.asked[one])
            answer = pickle.dumps(function(home, *arguments))
        return pickle.loads(answer)


class KillsOne:
    """An engine one of whose workers is killed before the given answer is waited for, with all that it has made so far."""

    def __init__(self, engine, worker, before):
        self.engine, self.worker, self.before = engine, worker, before
        self.asked, self.begun = 0, []

    def begin(self, what, *call, **more):
        self.begun.append(what)
        answer = self.engine.begin(what, *call, **more)

        def answered():
            self.asked += 1
            if self.asked == self.before:
                self.worker.kill()
                self.worker.wait()
            return answer()

        return answered


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
    engine = InAnyOrder(1)
    assert evaluated(home, digests, engine=engine) == whole
    assert len(engine.asked) == len(SHORT) * (8 + 1 + 1)  # of 295, 30 and 32 users, by 40


def test_two_workers_one_of_which_is_killed_judge_as_a_plain_run(own_cluster, demo, monkeypatch):
    home, digests, plain = demo
    in_small_calls(monkeypatch)
    killed = own_cluster.worker()
    own_cluster.worker()
    with clusters.opened(ClusterSettings(address=own_cluster.address), home) as engine:
        engine = KillsOne(engine, killed, before=4)
        assert evaluated(home, digests, engine=engine) == plain
    assert killed.poll() is not None
    for name in SHORT:
        assert engine.begun.count(f"{name}: judge on leave_one_out") > 2
