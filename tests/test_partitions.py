"""The stages over partitions by user hash give the tables of one machine."""

import duckdb
import pytest

from benchmarks.partitioned import truth
from benchmarks.partitioned.layout import TABLES, Layout
from benchmarks.partitions import FILES, THRESHOLD, logs, partitioned
from tasks.cluster import LOCAL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """Three partitions of a log in which some items are those of held-out users alone; users of few edges go."""
    layout = Layout(tmp_path_factory.mktemp("parts"), 3, THRESHOLD, min_user_edges=70, held_out_share=0.3, seed=7)
    sources = logs(layout.folder, 6_000, 1_000, FILES)
    truth.one_machine(layout, sources)
    partitioned(LOCAL, layout, sources)
    return layout


def test_every_table_is_that_of_one_machine(layout):
    assert {table: answer[1:] for table, answer in truth.compared(layout).items()} == dict.fromkeys(TABLES, (0, True))


def test_the_log_has_what_partitions_must_ask_each_other_for(layout):
    roles = layout.file("splits.strong_generalization", "[0-9]*")
    found = dict(duckdb.execute(f"select role, count(*) from read_parquet('{roles}') group by role").fetchall())
    assert set(found) == {"fit", "fold_in", "target", "dropped"}
    users = [layout.file("curated.interactions", part) for part in ("[0-9]*", 0)]
    everyone, of_one = (
        duckdb.execute(f"select count(distinct user_id) from read_parquet('{file}')").fetchone()[0] for file in users
    )
    assert 0 < of_one < everyone


def test_a_row_that_differs_is_seen(layout, tmp_path):
    own, other = layout.file("splits.leave_one_out", "one"), str(tmp_path / "other.parquet")
    changed = f"select * replace (case when item_id = '1' then 'held_out' else role end as role) from '{own}'"
    duckdb.execute(f"copy ({changed}) to '{other}' (format parquet)")
    rows, apart, same = truth.difference(own, other)
    assert rows > 0
    assert apart > 0
    assert not same
