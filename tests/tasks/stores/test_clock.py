"""Runs recorded while the machine's clock was ahead: never later than another, put right, and told."""

from datetime import UTC, datetime, timedelta

import pytest

from oneclass.tasks.stores import runs, warehouse
from tests.conftest import query_rows

NOW = datetime.now(UTC).replace(tzinfo=None)
FLOW = "nightly-retrain"


@pytest.fixture
def nights(home):
    """A home with a night two days ago, one recorded in 2031 with its other times, and one today."""
    starts = {"before": NOW - timedelta(days=2), "ahead": datetime(2031, 5, 6, 3), "today": NOW - timedelta(hours=4)}
    with warehouse.open_warehouse(home) as connection:
        for run_id, start in starts.items():
            row = [run_id, FLOW, start, start + timedelta(hours=1)]
            connection.execute("insert into operations.runs values (?, ?, 'small', ?, ?, 'completed', '{}', '')", row)
            night = [run_id, start.date()]
            connection.execute(
                "insert into operations.nights values (?, ?, 'events', 1, true, null, null, 0, null, null)", night
            )
        connection.execute("insert into operations.log_files values (1, 'p', 's', 1, 1, 0, '2031-05-06', null, null)")
        connection.execute(
            "insert into operations.model_settings (run_id, model, origin, reason, settings, searched_on) "
            "values ('ahead', 'slim', 'o', 'r', '{}', '2031-05-06')"
        )
    return home


def test_a_start_in_the_future_is_later_than_nothing_and_put_right_by_the_next_run(nights, caplog):
    assert runs.find_completed_since(nights, datetime.now(UTC) - timedelta(hours=1), FLOW) is None
    assert runs.find_completed_since(nights, datetime.now(UTC) - timedelta(hours=5), FLOW) == "today"
    with runs.record_run(nights, "next", FLOW, {}):
        pass
    [(started, ended)] = query_rows(nights, "select started_at, ended_at from operations.runs where run_id = 'ahead'")
    assert started == NOW - timedelta(hours=4)  # as the last run that began in the past
    assert ended <= datetime.now(UTC).replace(tzinfo=None)
    assert query_rows(nights, "select night from operations.nights where run_id = 'ahead'") == [(started.date(),)]
    assert query_rows(nights, "select max(ingested_at) < '2031-01-01' from operations.log_files") == [(True,)]
    assert query_rows(nights, "select max(searched_on) < '2031-01-01' from operations.model_settings") == [(True,)]
    [(alarm,)] = query_rows(nights, "select alarm from operations.alarms where run_id = 'next'")
    assert "run ahead: was recorded as begun at 2031-05-06 03:00 UTC" in alarm and alarm in caplog.text
    with runs.record_run(nights, "after that", FLOW, {}):
        pass
    assert query_rows(nights, "select count(*) from operations.alarms") == [(1,)]


@pytest.mark.parametrize(("began", "alarms"), [(datetime(2031, 5, 6), 1), (NOW + timedelta(seconds=20), 0)])
def test_a_first_run_far_in_the_future_is_set_to_the_time_at_which_it_is_found(home, began, alarms):
    """Clocks that differ by seconds are no alarm."""
    with warehouse.open_warehouse(home) as connection:
        row = [FLOW, began]
        connection.execute("insert into operations.runs values ('a', ?, 'small', ?, null, 'completed', '{}', '')", row)
    with runs.record_run(home, "next", FLOW, {}):
        pass
    assert query_rows(home, "select count(*) from operations.alarms") == [(alarms,)]
    (first,), (following,) = query_rows(home, "select started_at from operations.runs order by run_id")
    assert timedelta() <= following - first < timedelta(minutes=1) if alarms else first == began
