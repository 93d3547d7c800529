"""The protocol next_events against a plain transcription of its rule, on logs with repeats, ties and absent times."""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize import BinarizeSettings, binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.split import ALL_EDGES, SplitSettings, split
from oneclass.tasks.stores import matrices, warehouse
from oneclass.tasks.tuning.search import load_validation

DAY, THRESHOLD = datetime(2026, 3, 1), 3.0


def drawn(seed, *, days=30, undated=0.05):
    """Events of 40 users over some days; popular items, items of one event, repeats, low ratings, some without a time."""
    generator = np.random.default_rng(seed)
    for number in range(900):
        at = DAY + timedelta(minutes=int(generator.integers(days * 24 * 60)))
        user, item = int(generator.integers(40)), int(generator.zipf(1.4) % 25) if number % 40 else 100 + number
        yield f"u{user}", f"i{item}", int(generator.integers(1, 6)), None if generator.random() < undated else at


def by_hand(events, settings, since=None):
    """(first day, role of every edge, count of every edge that trains)."""
    times = defaultdict(list)
    for user, item, value, at in events:
        if value >= THRESHOLD and (since is None or (at is not None and at.date() >= since)):
            times[user, item].append(at)
    first = {edge: min((at for at in of_edge if at), default=None) for edge, of_edge in times.items()}
    days = sorted(at.date() for at in first.values() if at)
    cut = settings.next_from or days[int(np.ceil((1 - settings.next_share) * len(days))) - 1]
    trains = {edge for edge, at in first.items() if at and at.date() < cut}
    users, items = ({edge[side] for edge in trains} for side in (0, 1))
    roles = {}
    for (user, item), at in first.items():
        known = at is not None and user in users and item in items
        roles[user, item] = "train" if (user, item) in trains else "next" if known else "dropped"
    counts = {}
    for edge in trains:
        later = any(at and at.date() >= cut for at in times[edge])
        counts[edge] = sum(at is not None and at.date() < cut for at in times[edge]) if later else len(times[edge])
    return cut, roles, counts


def entries(home, matrix, users, items):
    """Each entry of a stored matrix by its user and item."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        names = {
            side: dict(
                connection.execute(f"select distinct {side}_index, {side}_id from curated.interactions").fetchall()
            )
            for side in ("user", "item")
        }
    found = matrix.tocoo()
    return {
        (names["user"][users[row]], names["item"][items[column]]): value
        for row, column, value in zip(found.row, found.col, found.data.tolist(), strict=True)
    }


def made(home, settings=SplitSettings(), since=None, protocols=("next_events",)):  # noqa: B008  (frozen)
    binarize(home, BinarizeSettings(threshold=THRESHOLD), "run", since=since)
    return split(home, settings, "run", protocols=protocols, seed=1, threshold=THRESHOLD, since=since)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "settings", "since"),
    [
        (1, SplitSettings(), None),
        (2, SplitSettings(next_share=0.4), None),
        (3, SplitSettings(next_from=date(2026, 3, 20)), None),
        (4, SplitSettings(), date(2026, 3, 8)),
    ],
)
def test_what_came_before_the_cut_trains_and_nothing_later_is_counted(home, log_events, seed, settings, since):
    events = list(drawn(seed))
    log_events(events)
    digests = made(home, settings, since).digests
    cut, roles, counts = by_hand(events, settings, since)
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = connection.execute("select user_id, item_id, role from splits.next_events").fetchall()
    assert {(user, item): role for user, item, role in found} == roles and len(found) == len(roles)
    assert {"train", "next", "dropped"} == set(roles.values()), "the log should have every role"
    stored = matrices.load_split(home, digests["next_events"])
    part = stored.parts["test"]
    assert entries(home, stored.train, stored.users, stored.items) == counts
    assert set(entries(home, part.targets, part.users, stored.items)) == {e for e in roles if roles[e] == "next"}
    assert (part.histories != stored.train[part.rows]).nnz == 0 and (np.diff(part.targets.indptr) > 0).all()
    assert (stored.users[part.rows] == part.users).all()
    assert (np.diff(stored.train.tocsc().indptr) > 0).all()  # no item that nothing is known of
    assert (ALL_EDGES in digests) and cut > DAY.date()


def test_the_split_of_a_run_can_be_tuned_on(home, log_events):
    log_events(list(drawn(5)))
    found = load_validation(home, "next_events", made(home).digests["next_events"], seed=1)
    assert found.users > 10 and found.metric == "ndcg@100"


def test_logs_without_times_are_refused_and_what_was_there_stays(home, log_events):
    log_events(list(drawn(6, undated=1.0)))
    made(home, protocols=("leave_one_out",))
    with pytest.raises(InputError, match="next_events: needs the times of events"):
        made(home)
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert connection.execute("select count(*) > 0 from splits.leave_one_out").fetchone() == (True,)


def test_a_log_of_one_day_lacks_that_protocol_alone(home, log_events, caplog):
    log_events(list(drawn(7, days=1)))
    assert set(made(home).digests) == {ALL_EDGES}
    assert "next_events: left out, because no edge is left to train on" in caplog.text
