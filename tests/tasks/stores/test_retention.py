"""What the stores keep: the fits of the runs recorded last, whatever the clock said, and those that readers may ask."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.popularity import Popularity
from oneclass.tasks.publish.stage import PublishSettings, publish
from oneclass.tasks.stores import fits, retention, runs, warehouse

GRAPH = csr_matrix(np.ones((2, 2), dtype=np.float32))


@pytest.fixture
def night(home):
    """A function that makes a run with one fit, at a time of its own."""

    def made(name, started_at="2026-01-01", *, publishes=False):
        with runs.record_run(home, name, "backfill", {}):
            digest = name * 16
            fits.store_fit(home, Popularity().fit(GRAPH), digest, key="k", matrices="m", seconds=1, peak_bytes=1)
            with warehouse.open_warehouse(home) as connection:
                connection.execute("update operations.runs set started_at = ? where run_id = ?", [started_at, name])
                row = [name, "leave_one_out", "popularity", digest, 1, 1, 1]
                connection.execute("insert into operations.model_fits values (?, ?, ?, ?, ?, ?, ?)", row)
                metric = "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'mean_rank', 1, 0, 1)"
                connection.execute(metric, [name])
            if publishes:
                publish(home, name, PublishSettings())
            retention.collect_garbage(home, runs=1)

    return made


def kept(home):
    return "".join(sorted(folder.name[0] for folder in (home.models / "popularity").iterdir()))


def test_a_run_keeps_its_own_fits_after_runs_of_the_future(home, night):
    for name in "ab":
        night(name, "2031-01-01")
    night("c", "2026-01-01")  # the clock was set right
    assert kept(home) == "bc"


def test_fits_behind_a_publication_stay_however_many_runs_publish_nothing(home, night):
    night("a", publishes=True)
    for name in "bcd":
        night(name)
    assert kept(home) == "acd"
    for name in "ef":
        night(name, publishes=True)
    assert kept(home) == "aef"  # the last three publications stay
    night("g", publishes=True)
    assert kept(home) == "efg"
