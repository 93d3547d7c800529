"""The order of likes and the ages of events that a split keeps, against plain transcriptions."""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import matrices
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import load_ids
from tests.tasks.conftest import cut_next_events_at, split_likes

DAY, NEXT_FROM = datetime(2026, 3, 1), date(2026, 3, 9)
PROTOCOLS = ["strong_generalization", "leave_one_out", "next_events"]


def draw_events(seed, *, timed=True, known=0.95, values=(1, 2)):
    """Events of 40 users with repeats, in no order of their times, many of which are equal and some absent."""
    generator = np.random.default_rng(seed)
    for _ in range(700):
        user, item, day = (int(generator.integers(top)) for top in (40, 30, 12))
        at = DAY + timedelta(days=day) if timed and generator.random() < known else None
        yield f"u{user}", f"i{item}", int(generator.integers(*values)), at


@pytest.fixture
def log_in_two_files(log_events):
    """Log some events, the last of them in a second file."""

    def log(events):
        log_events(events[:400], file_id=1)
        log_events(events[400:], file_id=2)

    return log


def find_firsts(events):
    """{user: {item: its first time, or the log's first without one, or its first line in a log without times}}."""
    firsts, oldest = defaultdict(dict), min((at for *_, at in events if at), default=None)
    for line, (user, item, _, at) in enumerate(events):
        if oldest is None:
            firsts[user].setdefault(item, line)
        elif at:
            firsts[user][item] = min(firsts[user].get(item, at), at)
    for user, item, *_ in events:
        firsts[user].setdefault(item, oldest)
    return firsts


def by_places(home, histories, users, items):
    """{user: the sets of items of equal recency ranks, newest first} of ordered histories."""
    ids, own, found = load_ids(home, "item"), load_ids(home, "user"), {}
    for row, user in enumerate(users):
        history, steps = histories[row], defaultdict(set)
        for column, rank in zip(history.indices, history.recency_ranks, strict=True):
            steps[rank].add(ids[items[column]])
        found[own[user]] = [steps[rank] for rank in sorted(steps)]
    return found


def newest_first(firsts, histories):
    """What `by_places` finds of the same items by the times or lines of `find_firsts`."""
    found = {}
    for user, sets in histories.items():
        steps = defaultdict(set)
        for item in set().union(*sets):
            steps[firsts[user][item]].add(item)
        found[user] = [steps[first] for first in sorted(steps, reverse=True)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False])
def test_every_protocol_keeps_the_order_of_times_and_lines(home, log_in_two_files, timed):
    log_in_two_files(events := list(draw_events(1, timed=timed)))
    firsts = find_firsts(events)
    for protocol, digest in split_likes(home, *PROTOCOLS[:2], order=True, held_out_share=0.25).items():
        stored = matrices.load_split(home, digest)
        assert (stored.recency_ranks >= 0).all() and stored.recency_ranks.dtype == np.int32
        found = by_places(home, stored.histories, stored.users, stored.items)
        assert found == newest_first(firsts, found) and stored.train.nnz > 200, protocol
        for part in stored.parts.values():
            of_part = by_places(home, part.histories, part.users, stored.items)
            assert of_part == newest_first(firsts, of_part) and of_part, protocol


def test_adjacency_lists_are_in_the_order_of_their_places(home, tmp_path):
    own = {user: [int(item) for item in np.random.default_rng(user).permutation(20)[:12]] for user in range(15)}
    files = [tmp_path / "train.txt", tmp_path / "test.txt"]
    for file, places in zip(files, (slice(10), slice(10, 12)), strict=True):
        file.write_text("".join(f"{user} {' '.join(map(str, items[places]))}\n" for user, items in own.items()))
    lists = Dataset(name="lists", title="lists", layout="adjacency")
    given = [[one.file_id] for one in ingest(home, lists, files, "run")]
    digest = split_likes(home, "given", plan={"given_files": given}, order=True, validation="latest")["given"]
    stored = matrices.load_split(home, digest)
    found = by_places(home, stored.parts["test"].histories, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[9::-1]] for user, items in own.items()}
    cut = load_validation(home, digest, 1).part.histories  # without the last two of each
    found = by_places(home, cut, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[7::-1]] for user, items in own.items()}
    some = load_validation(home, digest, 1, edges=60).part.histories  # of users, and the items that they have
    assert all(len(some[row].recency_ranks) == some[row].nnz > 0 for row in range(some.shape[0]))


def test_nothing_from_the_cut_on_weighs_in_under_next_events(home, log_events, monkeypatch):
    cut_next_events_at(monkeypatch, NEXT_FROM)
    log_events(events := list(draw_events(2, known=1.0)))
    stored = matrices.load_split(home, split_likes(home, "next_events", order=True)["next_events"])
    firsts = find_firsts([event for event in events if event[3].date() < NEXT_FROM])  # of a log that ends there
    part = stored.parts["test"]
    found = by_places(home, part.histories, part.users, stored.items)
    assert found == newest_first(firsts, found) and len(found) > 20
    assert all(set().union(*sets) == firsts[user].keys() for user, sets in found.items())


def ages_by_pair(events, last, threshold=1.0):
    """{(user, item): ages in days, ascending} of the events up to a day that count as likes."""
    likes = [event for event in events if event[2] >= threshold]
    oldest = min(at.date() for *_, at in likes if at)
    found = defaultdict(list)
    for user, item, _, at in likes:
        day = at.date() if at else oldest
        if day <= last:
            found[user, item].append((last - day).days)
    return {pair: sorted(ages) for pair, ages in found.items()}


def stored_ages(home, histories, users, items):
    """The same of stored histories."""
    own, ids, found = load_ids(home, "user"), load_ids(home, "item"), {}
    for row, user in enumerate(users):
        history = histories[row]
        ages = history.event_ages
        for entry, column in enumerate(history.indices):
            days = ages.days[ages.starts[entry] : ages.starts[entry + 1]]
            found[own[user], ids[items[column]]] = days.tolist()
    return found


@pytest.mark.parametrize("sums", [False, True], ids=["values count", "values add up"])
def test_every_protocol_has_the_ages_as_of_the_end_of_its_training(home, log_in_two_files, monkeypatch, sums):
    cut_next_events_at(monkeypatch, NEXT_FROM)
    events = list(draw_events(1, known=1.0 if sums else 0.95, values=(-1, 4) if sums else (0, 5)))
    log_in_two_files(events)
    last = max(at for *_, at in events if at).date()
    likes, plan = BinarizeSettings(sum_values=sums), {"times": True}
    for protocol, digest in split_likes(home, *PROTOCOLS, likes=likes, plan=plan, held_out_share=0.25).items():
        until = NEXT_FROM - timedelta(days=1) if protocol == "next_events" else last
        ages = ages_by_pair(events, until, threshold=1e-9 if sums else 1.0)
        stored = matrices.load_split(home, digest)
        found = stored_ages(home, stored.histories, stored.users, stored.items)
        assert len(found) == stored.train.nnz > 100 and stored.event_ages.days.dtype == np.int32
        parts = [stored_ages(home, part.histories, part.users, stored.items) for part in stored.parts.values()]
        for of in (found, *parts):
            assert of and of == {pair: ages[pair] for pair in of}, protocol


@pytest.mark.parametrize("times", [True, False])
def test_without_times_or_the_setting_the_matrices_have_no_ages(home, log_events, times):
    log_events(list(draw_events(3, timed=not times)))
    for digest in split_likes(home, *PROTOCOLS[:2], plan={"times": times}).values():
        assert matrices.load_split(home, digest).event_ages is None
        assert not [*(home.matrices / digest).glob("*event*")]
