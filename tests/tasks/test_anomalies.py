"""A night's figures and their usual ranges: faults on a short history, and the statement against a naive one in
NumPy.
"""

from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import polars as pl
import pytest

from oneclass import sql
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import load
from oneclass.tasks import anomalies, datasets
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.orchestration import run_summary
from oneclass.tasks.stores import runs, warehouse
from tests.conftest import query_rows
from tests.tasks.ingest.test_ingest_stage import write_csv
from tests.tasks.simulated_shop import FAULTS, FIRST_DAY, Shop, compute_run_time, shift_clock

NIGHTS = 20
CONTRACT = next(one for one in load() if one.table == "operations.nights")


def begin_run(connection, run_id, when):
    values = [run_id, when]
    connection.execute(
        "insert into operations.runs values (?, 'nightly', 'shop', ?, null, 'running', '{}', '0')", values
    )


def insert_log(connection, run_id, log, file_id, *, name=None, before=0, rejects=0):
    """Put a log into the warehouse as ingest would have, under another name every night or the one that is given."""
    times = pl.from_epoch(pl.Series(log.seconds), time_unit="s")
    events = pl.DataFrame({"user_id": log.user, "item_id": log.item, "value": log.stars, "occurred_at": times})
    text = events.with_columns(
        pl.col("user_id", "item_id").cast(pl.String), pl.col("occurred_at").cast(pl.Datetime("us"))
    )
    lines = text.with_columns(file_id=pl.lit(file_id), line_number=pl.int_range(1, len(events) + 1))
    if before:
        connection.execute("delete from raw.events where file_id = ?", [file_id])
        connection.execute("delete from operations.log_files where file_id = ?", [file_id])
    warehouse.insert(connection, "raw.events", lines)
    path, digest = name or f"{file_id}.csv", f"{run_id} {file_id}"
    of_file = [file_id, path, digest, 1, len(events), rejects, datetime(2025, 1, 1)]
    connection.execute("insert into operations.log_files values (?, ?, ?, ?, ?, ?, ?, null)", of_file)
    arrived = [run_id, path, path, "changed" if before else "new", file_id, digest, len(events), rejects, before, 0]
    columns = "run_id, name, path, outcome, file_id, sha256, events, rejects, events_before, rejects_before"
    connection.execute(f"insert into operations.arrivals ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", arrived)


def end_run(connection, run_id, state="completed"):
    connection.execute("update operations.runs set state = ? where run_id = ?", [state, run_id])


def find_broken_rules(connection, run_id, **parameters):
    """What the rules find: rule -> names of the figures."""
    results = check_contracts(connection, [CONTRACT], {"run_id": run_id, **parameters})
    return {one.rule: {row["figure"] for row in one.samples} for one in results if not one.success}


def load_figures(connection, run_id, column="value"):
    asked = f"select figure, {column} from operations.nights where run_id = ?"
    return dict(connection.execute(asked, [run_id]).fetchall())


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    """Twenty clean nights and the log of the next; what a test writes is to be taken back."""
    path = tmp_path_factory.mktemp("year") / "warehouse.duckdb"
    shop = Shop(5, 1200)
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        for statements in [*sql.migrations().values(), *sql.schema()]:
            connection.execute(statements)
        for number in range(NIGHTS):
            day = FIRST_DAY + timedelta(days=number)
            begin_run(connection, f"n{number}", compute_run_time(day))
            insert_log(connection, f"n{number}", shop.draw_day(day), number + 1, rejects=number % 3)
            anomalies.record_batch_stats(connection, f"n{number}")
            end_run(connection, f"n{number}")
        yield connection, shop.draw_day(FIRST_DAY + timedelta(days=NIGHTS))


@pytest.fixture
def tonight(year):
    connection, log = year
    connection.begin()
    begin_run(connection, "tonight", compute_run_time(FIRST_DAY + timedelta(days=NIGHTS)))
    yield connection, log
    connection.rollback()


@pytest.mark.slow
def test_clean_nights_break_no_rule(tonight):
    connection, log = tonight
    insert_log(connection, "tonight", log, 99)
    anomalies.record_batch_stats(connection, "tonight")
    assert find_broken_rules(connection, "tonight") == {}
    of_all = CONTRACT.model_copy(
        update={"only": None}
    )  # the nights before together: only `figure_once` is of one alone
    results = check_contracts(connection, [of_all], {"run_id": "tonight"})
    assert [one.rule for one in results if not one.success] == ["figure_once"]
    assert set(load_figures(connection, "tonight", "compared_with").values()) == {14}


def test_nothing_is_usual_before_seven_nights(year):
    connection = year[0]
    for number, known in ((0, 0), (6, 6), (7, 7)):
        judged = load_figures(connection, f"n{number}", "usual")
        assert load_figures(connection, f"n{number}", "compared_with")["events"] == known
        assert (judged["events"] is not None) == (known >= 7)
    assert set(load_figures(connection, "n0")) == {"events", "delivered", "reject_share", "hours_old"}


def test_missing_users_and_the_clocks_shift_are_what_a_naive_count_finds(tonight):
    connection, log = tonight
    late = shift_clock(log, np.random.default_rng(0))
    insert_log(connection, "tonight", late, 99)
    anomalies.record_batch_stats(connection, "tonight")
    asked = "select user_id::integer, hour(occurred_at) from raw.events where file_id between ? and ?"
    user, hour = (np.array(column) for column in zip(*connection.execute(asked, [NIGHTS - 13, NIGHTS]).fetchall()))
    came, expected, away = set(late.user.tolist()), 0.0, 0.0
    for one in set(user.tolist()):
        stays = np.exp(-np.sum(user == one) * len(late.user) / len(user))
        expected += 1 - stays
        away += (one not in came) - stays
    then, now = (np.bincount(hours, minlength=24) / len(hours) for hours in (hour, late.seconds // 3600 % 24))
    up = down = 0.0
    for at in range(24):
        slope = (then[(at + 1) % 24] - then[at - 1]) / 2
        up -= (now[at] - then[at]) * slope / (then[at] + 0.001)
        down += slope**2 / (then[at] + 0.001)
    found = load_figures(connection, "tonight")
    assert found["missing_user_share"] == pytest.approx(away / expected)
    assert found["clock_shift"] == pytest.approx(up / down) and 0.5 < abs(up / down) < 1.5


CAUGHT = {
    "half a file": ("times_usual", "hours_moved"),
    "doubled file": ("heavy_hitters_usual", "doubled_share"),
    "shuffled items: other ids": ("items_usual", "item_overlap"),
    "shuffled items: between lines": ("items_usual", "repeat_share"),
    "bots: three busy ones": ("heavy_hitters_usual", "heaviest_user_share"),
    "bots: a swarm": ("newcomers_usual", "new_user_share"),
    "missing country of 50 %": ("times_usual", "hours_moved"),
    "missing country of 25 %": ("returning_users_usual", "missing_user_share"),
    "clock an hour off": ("times_usual", "off_day_share"),
    "clock an hour off, days cut by it": ("times_usual", "clock_shift"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAUGHT)
def test_a_fault_is_warned_of(tonight, kind):
    connection, log = tonight
    insert_log(connection, "tonight", FAULTS[kind](log, np.random.default_rng(0)), 99)
    anomalies.record_batch_stats(connection, "tonight")
    rule, figure = CAUGHT[kind]
    found = find_broken_rules(connection, "tonight")
    assert figure in found.get(rule, ())
    assert "hard_limits" not in found


@pytest.mark.parametrize(("share", "allowed", "alarm"), [(0.45, 0.5, False), (0.55, 0.5, True), (0.55, 0.6, False)])
def test_a_handful_of_users_who_make_most_events_is_an_alarm(tonight, share, allowed, alarm):
    connection, log = tonight
    user = log.user.copy()
    user[: round(share * len(user))] = np.arange(round(share * len(user))) % 5
    insert_log(connection, "tonight", type(log)(**{**vars(log), "user": user}), 99)
    anomalies.record_batch_stats(connection, "tonight")
    counts = np.sort(np.unique(user, return_counts=True)[1])
    assert load_figures(connection, "tonight")["top_users_share"] == pytest.approx(counts[-5:].sum() / len(user))
    assert ("users_spread" in find_broken_rules(connection, "tonight", max_top_users_share=allowed)) == alarm


def test_a_handful_of_users_is_no_alarm_among_few_events_or_where_it_is_usual(tonight):
    connection, log = tonight
    insert_log(connection, "tonight", log.take(np.arange(99)), 99)
    anomalies.record_batch_stats(connection, "tonight")
    assert load_figures(connection, "tonight")["top_users_share"] is None
    for value, usual, alarm in ((0.8, None, True), (0.8, 0.39, True), (0.8, 0.41, False)):
        change = "update operations.nights set value = ?, usual = ? where figure = 'top_users_share'"
        connection.execute(f"{change} and run_id = 'tonight'", [value, usual])
        assert ("users_spread" in find_broken_rules(connection, "tonight")) == alarm


def test_ids_that_are_all_new_are_beyond_belief(tonight):
    connection, log = tonight
    insert_log(connection, "tonight", log.__class__(**{**vars(log), "user": log.user + 10**6}), 99)
    anomalies.record_batch_stats(connection, "tonight")
    assert find_broken_rules(connection, "tonight")["hard_limits"] == {"new_user_share"}


def test_a_night_without_a_log_is_warned_of(tonight):
    connection, _ = tonight
    anomalies.record_batch_stats(connection, "tonight")
    assert find_broken_rules(connection, "tonight") == {"batch_not_empty": {"delivered"}}
    assert load_figures(connection, "tonight")["hours_old"] > 24


def test_how_old_the_newest_event_may_be_is_a_setting(tonight):
    connection, _ = tonight
    anomalies.record_batch_stats(connection, "tonight")
    assert "newest_event_fresh" in find_broken_rules(connection, "tonight", fresh_within_hours=26.0)
    assert "newest_event_fresh" not in find_broken_rules(connection, "tonight", fresh_within_hours=28.0)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_night_that_is_run_again_counts_once(tonight, state):
    connection, log = tonight
    insert_log(connection, "tonight", log, 99)
    anomalies.record_batch_stats(connection, "tonight")
    end_run(connection, "tonight", state)
    begin_run(connection, "again", compute_run_time(FIRST_DAY + timedelta(days=NIGHTS)) + timedelta(hours=2))
    anomalies.record_batch_stats(connection, "again")  # it finds nothing new
    before, again = load_figures(connection, "tonight"), load_figures(connection, "again")
    assert again == pytest.approx({**before, "hours_old": before["hours_old"] + 2})
    assert load_figures(connection, "again", "usual") == load_figures(connection, "tonight", "usual")
    assert find_broken_rules(connection, "again") == {}
    end_run(connection, "again")
    complete = "select count(*), count(distinct night) from operations.complete_nights"
    assert connection.execute(complete).fetchone() == (NIGHTS + 1, NIGHTS + 1)


def test_a_night_that_failed_is_compared_with_no_other(tonight):
    connection, log = tonight
    insert_log(connection, "tonight", log, 99)
    anomalies.record_batch_stats(connection, "tonight")
    usual = "select count(*) from operations.complete_nights"
    assert connection.execute(usual).fetchone() == (NIGHTS,)


def test_of_a_log_that_has_grown_what_is_new_counts(tonight):
    connection, log = tonight
    columns = (
        "user_id::bigint as user, item_id::bigint as item, value::bigint as stars, epoch(occurred_at)::bigint as s"
    )
    old = connection.execute(
        f"select {columns} from raw.events where file_id = {NIGHTS} order by line_number"
    ).fetchnumpy()
    parts = dict(zip(vars(log), [*old.values(), old["s"]], strict=True))
    grown = type(log)(**{name: np.concatenate([part, getattr(log, name)]) for name, part in parts.items()})
    insert_log(connection, "tonight", log, 99)
    anomalies.record_batch_stats(connection, "tonight")
    apart = load_figures(connection, "tonight")
    connection.execute("delete from raw.events where file_id = 99")
    for table in ("operations.log_files", "operations.arrivals"):
        connection.execute(f"delete from {table} where file_id = 99")
    connection.execute("delete from operations.nights where run_id = 'tonight'")
    insert_log(connection, "tonight", grown, NIGHTS, before=len(old["s"]))
    anomalies.record_batch_stats(connection, "tonight")
    together = load_figures(connection, "tonight")
    same = ("events", "users", "items", "heaviest_user_share", "doubled_share", "new_user_share", "new_item_share")
    assert {name: together[name] for name in same} == pytest.approx({name: apart[name] for name in same})


def naive_usual(history, tonight, in_ratio):
    """(usual, spread, nights) of a list of (night, value), by the comment of the statement `nights/usual`."""
    known = sorted((night, value) for night, value in history if value is not None and (value > 0 or not in_ratio))[
        -56:
    ]
    values = np.array([np.log(value) if in_ratio else value for _, value in known])
    weekdays = np.array([night.weekday() for night, _ in known])
    level = {day: np.median(values[weekdays == day]) for day in range(7) if (weekdays == day).sum() >= 4}
    apart, own = values, level.get(tonight.weekday())
    if own is not None:
        apart = values - np.array([level.get(day, np.median(values)) for day in weekdays])
    apart = apart[-14:]
    if len(apart) < 7:
        return None, None, len(apart)
    spread = 1.4826 * np.median(np.abs(apart - np.median(apart)))
    if own is None:
        spread = max(spread, (np.quantile(apart, 0.9) - np.quantile(apart, 0.1)) / 2.5631)
    usual = (own or 0) + np.median(apart)
    return np.exp(usual) if in_ratio else usual, spread, len(apart)


@pytest.mark.parametrize("length", [0, 5, 7, 13, 27, 40, 90])
def test_the_usual_is_that_of_a_naive_median(year, length):
    connection, random = year[0], np.random.default_rng(length)
    connection.begin()
    for table in ("operations.nights", "operations.runs"):
        connection.execute(f"delete from {table}")
    history = {"events": [], "new_user_share": [], "items": []}
    first = date(2026, 1, 1)
    for number in range(length):
        night = first + timedelta(days=number + int(number > 30))  # one night is missing
        begin_run(connection, f"r{number}", night)
        end_run(connection, f"r{number}", "completed" if number % 11 else "failed")
        for figure, known in history.items():
            value = float(random.integers(0, 9)) if figure != "items" or number % 5 else None
            connection.execute(
                "insert into operations.nights values (?, ?, ?, ?, ?, null, null, 0)",
                [f"r{number}", night, figure, value, figure == "events"],
            )
            if number % 11:
                known.append((night, value))
    tonight = first + timedelta(days=length + 1)
    connection.execute(
        "create or replace temp table night_figures as from (values ('events', 3.0::double, true), "
        "('new_user_share', 0.5, false), ('items', 2.0, false)) as figures (figure, value, in_ratio)"
    )
    begin_run(connection, "tonight", tonight)
    anomalies._compare_with_baseline(
        connection, "operations.nights", "tonight", tonight, anomalies.MIN_BASELINE_BATCHES
    )
    asked = "select figure, usual, spread, compared_with from operations.nights where run_id = 'tonight'"
    found = {figure: rest for figure, *rest in connection.execute(asked).fetchall()}
    connection.rollback()
    for figure, known in history.items():
        assert found[figure] == pytest.approx(list(naive_usual(known, tonight, figure == "events")))


@pytest.mark.slow
def test_a_night_over_the_landing_folder_leaves_its_figures_and_other_runs_do_not(home, tmp_path):
    dataset = datasets.load_dataset("ml-1m", tmp_path)
    write_csv(home.landing / "ratings.csv", "a,x,5", "b,x,4")
    other = write_csv(tmp_path / "ratings.csv", "c,x,5", "d,x,4", "e,x,4")
    calls = (("night", [], False), ("by hand", [other], False), ("again", [], False), ("all", [], True))
    for run_id, sources, replace in calls:
        with runs.record_run(home, run_id, "nightly", {}):
            ingest(home, dataset, sources, run_id, replace=replace)
    found = query_rows(home, "select run_id, value from operations.nights where figure = 'events' order by 1")
    assert found == [("again", 2), ("night", 2)]


def test_new_lines_of_a_grown_log_that_are_rejected_are_an_alarm(home, tmp_path, caplog):
    dataset = datasets.load_dataset("ml-1m", tmp_path)
    lines = [f"u{number},x,5" for number in range(990)]
    write_csv(home.landing / "ratings.csv", *lines)
    with runs.record_run(home, "before", "nightly", {}):
        ingest(home, dataset, [], "before")
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update operations.nights set night = night - interval 1 day")
    write_csv(
        home.landing / "ratings.csv", *lines, "a,x,5", "b,x,9"
    )  # of all lines a thousandth, of the new ones a half
    with runs.record_run(home, "night", "nightly", {}):
        ingest(home, dataset, [], "night")
    assert not run_summary.has_alarms(home, "before") and run_summary.has_alarms(home, "night")
    assert "an unusual night (rejects_few): reject_share 0.5. As a rule" in caplog.text
    assert "max_reject_share" in caplog.text
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert anomalies.load_anomalies(connection, "night") == []


def test_a_warned_night_says_what_and_where_to_look(home, tmp_path, caplog):
    dataset = datasets.load_dataset("ml-latest-small", tmp_path)
    home.landing.mkdir(parents=True)
    (home.landing / "ratings.csv").write_text("userId,movieId,rating,timestamp\na,x,5,1000000000\n")
    with runs.record_run(home, "night", "nightly", {}):
        ingest(home, dataset, [], "night", IngestSettings(fresh_within_hours=48))
        with warehouse.open_warehouse(home, read_only=True) as connection:
            (figure,) = anomalies.load_anomalies(connection, "night")
    assert f"- **unusual**: {figure}" in run_summary.summarize_success(home, "night", None)
    assert figure.startswith("hours_old ") and figure.endswith("(newest_event_fresh)")
    assert "an unusual night (newest_event_fresh): hours_old" in caplog.text
    assert "See whether the supplier's files are late" in caplog.text
