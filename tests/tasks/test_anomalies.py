"""A night's figures and what is usual for them: a simulated shop, its faults, and the statement against NumPy."""

from contextlib import contextmanager
from datetime import date, datetime, timedelta
from itertools import islice

import duckdb
import numpy as np
import polars as pl
import pytest

from oneclass import sql
from oneclass.data_contracts import check, contracts
from oneclass.data_contracts.contracts import load
from oneclass.tasks import anomalies, datasets
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse
from tests.conftest import execute_statement, query_rows
from tests.tasks.ingest.conftest import write_csv

FIRST_DAY = date(2025, 11, 24)
GENRES = 12
WEEKDAY_FACTORS = (1.0, 0.95, 0.95, 1.0, 1.1, 1.4, 1.35)  # from Monday on
HOLIDAY_FACTORS = {(12, 24): 0.6, (12, 25): 0.35, (12, 26): 0.5, (1, 1): 0.6}
EVENTS, NIGHTS = 250, 40


def draw_days(seed):
    """Yield a shop's log of one day after the other, by time: events of users and items of genres, more every day."""
    random, day = np.random.default_rng(seed), FIRST_DAY
    activity, tastes, genres, appeals = np.empty(0), np.empty((0, GENRES)), np.arange(GENRES), np.ones(GENRES)
    users, items = EVENTS, EVENTS // 3  # who are new
    while True:
        activity = np.append(activity, random.lognormal(0, 0.8, users))
        tastes = np.concatenate([tastes, random.dirichlet(np.full(GENRES, 0.25), users)])
        genres = np.append(genres, random.integers(0, GENRES, items))
        appeals = np.append(appeals, random.lognormal(0, 1.2, items))
        before_christmas = (date(2025, 12, 24) - day).days
        season = 1 + 0.7 * np.exp(-(((before_christmas - 6) / 9) ** 2)) if before_christmas > 0 else 1
        season *= HOLIDAY_FACTORS.get((day.month, day.day), 1) * WEEKDAY_FACTORS[day.weekday()]
        events = random.poisson(EVENTS * 1.01 ** (day - FIRST_DAY).days * season * random.lognormal(0, 0.08))
        user = random.choice(len(activity), events, p=activity / activity.sum())
        liked = tastes[user].cumsum(axis=1)
        genre = (liked > random.random((events, 1)) * liked[:, -1:]).argmax(axis=1)
        weights = (appeals * (genres == genre[:, None])).cumsum(axis=1)
        item = (weights > random.random((events, 1)) * weights[:, -1:]).argmax(axis=1)
        seconds = (day - date(1970, 1, 1)).days * 86400 + random.integers(0, 86400, events)
        value = np.clip(np.rint(3.6 + 0.25 * np.log(appeals[item]) + random.normal(0, 1, events)), 1, 5)
        yield day, pl.DataFrame({"user": user, "item": item, "value": value, "seconds": seconds}).sort("seconds")
        users, items, day = random.poisson(EVENTS * 0.01), random.poisson(EVENTS * 0.002), day + timedelta(days=1)


def compute_run_time(day: date) -> datetime:
    """Return the start of the run that reads the log of `day`: three o'clock in the following night."""
    return datetime(day.year, day.month, day.day, 3) + timedelta(days=1)


FAULTS = {
    "half a file": lambda log, _: log.head(len(log) // 2),
    "half a file by user": lambda log, _: log.sort(pl.col("user").cast(pl.String)).head(len(log) // 2),
    "doubled rows": lambda log, _: pl.concat([log, log]),
    "values x 20": lambda log, _: log.with_columns(pl.col("value") * 20),
    "permuted items": lambda log, random: log.with_columns(item=random.permutation(log["item"].max() + 1)[log["item"]]),
    "permuted users": lambda log, random: log.with_columns(user=random.permutation(log["user"].max() + 1)[log["user"]]),
    "a year back": lambda log, _: log.with_columns(pl.col("seconds") - 365 * 86400),
    "items shifted by a line": lambda log, _: log.with_columns(item=np.roll(log["item"], 1)),
    "half of the events from one user": lambda log, random: log.with_columns(
        user=np.where(random.random(len(log)) < 0.5, log["user"][0], log["user"])
    ),
}
CONTRACT = next(one for one in load() if one.table == "operations.nights")


def begin_run(connection, run_id, when):
    row = "(?, 'nightly', 'shop', ?, null, 'running', '{}', '0')"
    connection.execute(f"insert into operations.runs values {row}", [run_id, when])


def end_run(connection, run_id, state="completed"):
    connection.execute("update operations.runs set state = ? where run_id = ?", [state, run_id])


def record_night(connection, run_id, day, log, file_id):
    """Record a night whose log was ingested, under another name every night; return what is told of it."""
    begin_run(connection, run_id, compute_run_time(day))
    columns = ["user_id", "item_id", "value", "occurred_at"]
    events = log.with_columns(pl.from_epoch("seconds", time_unit="s").cast(pl.Datetime("us")))
    lines = events.cast({"user": pl.String, "item": pl.String}).rename(dict(zip(log.columns, columns, strict=True)))
    numbered = lines.with_columns(file_id=pl.lit(file_id), line_number=pl.int_range(1, len(log) + 1))
    warehouse.insert(connection, "raw.events", numbered)
    path, digest = f"{file_id}.csv", f"{run_id} {file_id}"
    of_file = [file_id, path, digest, 1, len(log), 0, datetime(2025, 1, 1)]
    connection.execute("insert into operations.log_files values (?, ?, ?, ?, ?, ?, ?, null, null)", of_file)
    columns = "run_id, name, path, outcome, file_id, sha256, events, rejects, events_before, rejects_before"
    arrived = [run_id, path, path, "new", file_id, digest, len(log), 0, 0, 0]
    connection.execute(f"insert into operations.arrivals ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", arrived)
    anomalies.record_batch_stats(connection, run_id)
    return anomalies.describe_night(connection, run_id)


def load_figures(connection, run_id, column="value"):
    asked = f"select figure, {column} from operations.nights where run_id = ?"
    return dict(connection.execute(asked, [run_id]).fetchall())


@contextmanager
def open_tables():
    """Connect to a database with the warehouse's tables alone."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        for statements in [*sql.migrations().values(), *contracts.schema()]:
            connection.execute(statements)
        yield connection


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def shop(request):
    """Forty ordinary nights with weekends, growth and Christmas, what was told of each, and the log of the next."""
    days, told = draw_days(request.param), {}
    with open_tables() as connection:
        for number, (day, log) in enumerate(islice(days, NIGHTS)):
            told[day] = record_night(connection, f"n{number}", day, log, number + 1)
            end_run(connection, f"n{number}")
        yield connection, next(days)[1], told


@pytest.fixture
def tonight(shop):
    connection, log, _ = shop
    connection.begin()
    yield connection, log, FIRST_DAY + timedelta(days=NIGHTS)
    connection.rollback()


def test_ordinary_nights_raise_no_alarm(shop):
    connection, _, told = shop
    assert set(told.values()) == {""} and len(told) == NIGHTS
    for number, known in ((0, 0), (6, 0), (7, 7), (20, 14)):
        assert load_figures(connection, f"n{number}", "compared_with")["events"] == known
    others = dict.fromkeys(("delivered", "reject_share", "hours_old"), False)
    assert load_figures(connection, "n0", "in_ratio") == {"events": True} | others


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_raises_an_alarm(tonight, kind):
    connection, log, day = tonight
    said = record_night(connection, "tonight", day, FAULTS[kind](log, np.random.default_rng(0)), 99)
    assert said.startswith("an unusual night: ") and "\n" not in said
    results = check(connection, [CONTRACT], {"run_id": "tonight"})
    assert all(result.success for result in results)  # the night stands


def test_a_night_without_a_log_is_told_of_but_on_holidays(tonight):
    connection, _, day = tonight
    day += timedelta(days=7)
    for run_id, when in (("tonight", day), ("holiday", date(2026, 12, 24))):
        begin_run(connection, run_id, compute_run_time(when))
        anomalies.record_batch_stats(connection, run_id)
        assert ("new events 0, usually from" in anomalies.describe_night(connection, run_id)) == (when == day)


def test_how_old_the_newest_event_may_be_is_a_bound(tonight):
    connection, log, day = tonight
    record_night(connection, "tonight", day, log, 99)
    future = "update raw.events set occurred_at = '2999-01-01' where (file_id, line_number) = (99, 1)"
    connection.execute(future)  # does not count
    for bound, told in ((2.0, True), (28.0, False)):
        anomalies.record_batch_stats(connection, "tonight", {"hours_old": bound})
        assert ("hours since the newest event" in anomalies.describe_night(connection, "tonight")) == told


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_night_that_is_run_again_counts_once(tonight, state):
    connection, log, day = tonight
    record_night(connection, "tonight", day, log, 99)
    end_run(connection, "tonight", state)
    begin_run(connection, "again", compute_run_time(day) + timedelta(hours=2))
    anomalies.record_batch_stats(connection, "again")  # it finds nothing new
    before, again = load_figures(connection, "tonight"), load_figures(connection, "again")
    assert again == pytest.approx({**before, "hours_old": before["hours_old"] + 2})
    assert load_figures(connection, "again", "usual") == load_figures(connection, "tonight", "usual")
    end_run(connection, "again")
    complete = "select count(*), count(distinct night) from operations.complete_nights"
    assert connection.execute(complete).fetchone() == (NIGHTS + 1, NIGHTS + 1)


def test_the_fit_of_users_and_items_is_what_a_naive_count_finds():
    random = np.random.default_rng(0)
    user, new_user = random.integers(0, 30, 400), random.integers(0, 32, 80)  # two never came before
    item, new_item = ((of + random.integers(0, 9, len(of))) % 22 for of in (user, new_user))
    counts = np.zeros((32, 22))
    np.add.at(counts, (user, item), 1)
    counts = counts**0.5
    scaled = counts / np.maximum(counts.sum(1, keepdims=True), 1) ** 0.5 / np.maximum(counts.sum(0), 1) ** 0.5
    left, values, right = np.linalg.svd(scaled)
    left, right = (left[:, :16] * values[:16]), right[:16].T
    known = [(u, i) for u, i in zip(new_user, new_item, strict=True) if counts[u].any() and counts[:, i].any()]
    left, right = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9) for side in (left, right))
    cosine = np.array([[left[u] @ right[i] for _, i in known] for u, _ in known])
    value, noise = anomalies.compute_pairing(user, item, new_user, new_item)
    expected = max((np.diag(cosine).mean() - cosine.mean()) / cosine.std(), 0.1)
    assert value == pytest.approx(expected, rel=1e-6)
    assert noise == pytest.approx(len(known) ** -0.5)
    assert anomalies.compute_pairing(user, item, new_user[:9], new_item[:9]) is None


def naive_usual(history, tonight, in_ratio):
    """(usual, spread, nights) of a list of (night, value), by the comment of the statement `nights/usual`."""
    known = [(night, value) for night, value in history if value is not None and (value > 0 or not in_ratio)]
    known = sorted(known)[-56:]
    values = np.array([np.log(value) if in_ratio else value for _, value in known])
    weekdays = np.array([night.weekday() for night, _ in known])
    level = {day: np.median(values[weekdays == day]) for day in range(7) if (weekdays == day).sum() >= 2}
    apart, own = values, level.get(tonight.weekday())
    if own is not None:
        apart = values - np.array([level.get(day, np.median(values)) for day in weekdays])
    apart = apart[-14:]
    if len(apart) < 7:
        return None, None, 0
    spread = 1.4826 * np.median(np.abs(apart - np.median(apart)))
    if own is None:
        spread = max(spread, (np.quantile(apart, 0.9) - np.quantile(apart, 0.1)) / 2.5631)
    usual = (own or 0) + np.median(apart)
    return np.exp(usual) if in_ratio else usual, spread, len(apart)


@pytest.mark.parametrize("length", [0, 5, 7, 13, 27, 90])
def test_the_usual_is_that_of_a_naive_median(length):
    random = np.random.default_rng(length)
    history, first = {"events": [], "new_user_share": [], "items": []}, date(2026, 1, 1)
    insert = "insert into operations.nights values (?, ?, ?, ?, ?, null, null, 0, null, null)"
    with open_tables() as connection:
        for number in range(length):
            night = first + timedelta(days=number + int(number > 30))  # one night is missing
            begin_run(connection, f"r{number}", night)
            end_run(connection, f"r{number}", "completed" if number % 11 else "failed")
            for figure, known in history.items():
                value = float(random.integers(0, 9)) if figure != "items" or number % 5 else None
                connection.execute(insert, [f"r{number}", night, figure, value, figure == "events"])
                if number % 11:
                    known.append((night, value))
        tonight = first + timedelta(days=length + 1)
        connection.execute(
            "create temp table night_figures as from (values ('events', 3.0::double, true, 0.1), ('new_user_share', "
            "0.5, false, 0.1), ('items', 2.0, false, 0.1)) as figures (figure, value, in_ratio, noise)"
        )
        begin_run(connection, "tonight", tonight)
        anomalies.judge_night(connection, "tonight", tonight)
        asked = "select figure, usual, spread, compared_with from operations.nights where run_id = 'tonight'"
        found = {figure: rest for figure, *rest in connection.execute(asked).fetchall()}
    for figure, known in history.items():
        assert found[figure] == pytest.approx(list(naive_usual(known, tonight, figure == "events")))


def test_a_night_has_figures_of_what_is_new_in_the_landing_folder_and_other_runs_have_none(home, tmp_path):
    dataset = datasets.load_dataset("ml-1m", tmp_path)

    def run(run_id, *sources, replace=False):
        with runs.record_run(home, run_id, "nightly", {}):
            ingest(home, dataset, list(sources), run_id, IngestSettings(fresh_within_hours=1e6), replace=replace)

    lines = [f"u{number},x,5" for number in range(990)]
    write_csv(home.landing / "ratings.csv", *lines)
    run("before")
    run("by hand", write_csv(tmp_path / "ratings.csv", "c,x,5", "d,x,4", "e,x,4"))
    run("again")
    run("all", replace=True)
    execute_statement(home, "update operations.nights set night = night - interval 1 day")
    # Of all lines a thousandth is rejected, of the new ones a half.
    write_csv(home.landing / "ratings.csv", *lines, "a,x,5", "b,x,9")
    run("night")
    found = query_rows(home, "select run_id, value from operations.nights where figure = 'events' order by 1")
    assert found == [("again", 990), ("before", 990), ("night", 1)]
    [(_, alarm)] = query_rows(home, "from operations.alarms where run_id = 'night'")
    assert "share of rejected lines 0.5, usually to 0.01" in alarm
