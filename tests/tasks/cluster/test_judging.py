"""The evaluation by workers, one of which is killed on the way: the tables of a plain run, row for row and bit for bit."""

import pytest

from tasks import cluster as clusters
from tasks.cluster import ClusterSettings
from tasks.stores.home import Home, Limits
from tests.tasks.evaluate.judged_demo import SHORT, evaluated, in_small_calls, prepared


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
