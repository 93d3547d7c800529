"""The order of likes and the ages of events that a split keeps, and the latest edges that settings are chosen by."""

import uuid
from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION, choose_publish_protocol
from oneclass.tasks.stores import matrices
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import load_entries, load_ids, query_rows
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
    own = {user: [int(item) for item in np.random.default_rng(user).permutation(20)[:10]] for user in range(15)}
    digest = split_lines(home, tmp_path, own, "latest")
    stored = matrices.load_split(home, digest)
    found = by_places(home, stored.parts["test"].histories, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[9::-1]] for user, items in own.items()}
    cut = load_validation(home, digest, 1).parts["validation"].histories  # without the last two of each
    found = by_places(home, cut, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[7::-1]] for user, items in own.items()}
    some = load_validation(home, digest, 1, edges=60).parts["validation"].histories  # of users, and their items
    assert all(len(some[row].recency_ranks) == some[row].nnz > 0 for row in range(some.shape[0]))


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


LISTS = Dataset(name="lists", title="lists", layout="adjacency")
SHUFFLED, SORTED, DRIFTING = "shuffled", "sorted", "drifting"


def draw_lines(order, seed, users=300, items=200):
    """{user: its items in their order}; a drifting line has items whose places move up, of which no id tells."""
    generator = np.random.default_rng(seed)
    names = generator.permutation(items)
    found = {}
    for user in range(users):
        length = int(generator.integers(1, 40))
        at = generator.choice(items, size=length, replace=False)
        if order == DRIFTING:
            start = generator.integers(items - 60)
            at = start + np.argsort(np.argsort(np.arange(60) + generator.normal(0, 12, 60)))[:length]
            at = np.array(list(dict.fromkeys(at)))
        own = [int(name) for name in names[at]]
        found[user] = sorted(own) if order == SORTED else own
    return found


def split_lines(home, folder, train, validation="auto", more=()):
    """The digest of the given split of a file of such lines, and more (user, items) below them."""
    files = [folder / "train.txt", folder / "test.txt"]
    test = [(user, [1000 + user % 7]) for user in train]
    for file, lines in zip(files, ([*train.items(), *more], test), strict=True):
        file.write_text("".join(" ".join(map(str, [user, *items])) + "\n" for user, items in lines))
    ids = [[one.file_id] for one in ingest(home, LISTS, files, uuid.uuid4().hex)]
    return split_likes(home, "given", plan={"given_files": ids}, order=True, validation=validation)["given"]


def items_by_user(home, matrix, users):
    """{user: set of its items} of a matrix with those users as rows."""
    found = defaultdict(set)
    for user, item in load_entries(home, matrix, users, range(matrix.shape[1])):
        found[int(user)].add(int(item))
    return dict(found)


def test_line_end_takes_exactly_the_last_items_of_each_line(home, tmp_path):
    """The lines of a user with several follow one another."""
    train = draw_lines(SHUFFLED, 1) | {900: [3], 901: [4, 5], 902: [7, 6, 7, 8, 6, 9]}
    more = [(user, [500 + user]) for user in train]
    ends_by = {}
    for lines in ((), more):
        digest = split_lines(home, tmp_path, train, "latest", more=lines)
        found = load_validation(home, digest, 1)
        once = {user: list(dict.fromkeys([*items, *dict(lines).get(user, [])])) for user, items in train.items()}
        kept = {user: max(1, int(0.8 * len(items) + 1e-9)) for user, items in once.items()}
        stored = matrices.load_split(home, digest)
        expected = {user: set(own[: kept[user]]) for user, own in once.items()}
        assert items_by_user(home, found.train, stored.users) == expected
        ends = {user: set(own[kept[user] :]) for user, own in once.items() if len(own) > kept[user]}
        part = found.parts["validation"]
        assert items_by_user(home, part.targets, part.users) == ends
        assert (part.histories != found.train[part.rows]).nnz == 0
        assert np.array_equal(stored.users[part.rows], part.users)
        ends_by[bool(lines)] = ends
    assert ends_by[False][901] == {5} and 900 not in ends_by[False] and ends_by[True][900] == {1400}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_auto_finds_a_drift_along_lines_and_none_where_they_are_shuffled_or_sorted(home, tmp_path, caplog, seed):
    for order, words in (
        (DRIFTING, "given, validation: by the ends of lines, for items drift along them (z = "),
        (SHUFFLED, "given, validation: drawn at random, for items do not drift along lines (z = "),
        (SORTED, "given, validation: drawn at random, for lines are sorted by item id"),
    ):
        caplog.clear()
        digest = split_lines(home, tmp_path, draw_lines(order, seed))
        assert (matrices.load_split(home, digest).latest_mask is not None) == (order == DRIFTING)
        assert words in caplog.text
    caplog.clear()
    drifting = split_lines(home, tmp_path, {user: sorted(own) for user, own in draw_lines(DRIFTING, seed).items()})
    assert matrices.load_split(home, drifting).latest_mask is None and "sorted by item id" in caplog.text


def test_without_places_and_times_line_end_is_refused_and_auto_draws(home, log_events, caplog):
    log_events([(f"u{user}", f"i{item}", 1) for user in range(60) for item in range(user % 9 + 2)])
    log_events([(f"u{user}", "i50", 1) for user in range(60)], file_id=2)
    given = {"given_files": ([1], [2])}
    digest = split_likes(home, "given", plan=given, validation="auto")["given"]
    assert matrices.load_split(home, digest).latest_mask is None
    assert "drawn at random, for the training file has neither places" in caplog.text
    message = "split.validation = latest: the training file has neither places in its lines"
    with pytest.raises(InputError, match=message):
        split_likes(home, "given", plan=given, validation="latest")


def test_logs_with_times_are_ordered_by_them(home, log_events):
    day = datetime(2026, 3, 1)
    own = {
        user: [day + timedelta(hours=int(hour)) for hour in np.random.default_rng(user).permutation(10)]
        for user in range(20)
    }
    log_events([(user, item, 1, at) for user, times in own.items() for item, at in enumerate(times)])
    log_events([(user, 50, 1, day) for user in own], file_id=2)
    digest = split_likes(home, "given", plan={"given_files": ([1], [2])}, validation="latest")["given"]
    found = load_validation(home, digest, 1)
    latest = {
        user: {item for item, at in enumerate(times) if at >= day + timedelta(hours=8)} for user, times in own.items()
    }
    part = found.parts["validation"]
    assert items_by_user(home, part.targets, part.users) == latest


def draw_days(users):
    generator = np.random.default_rng(1)
    for _ in range(60 * users):
        at = datetime(2026, 3, 1) + timedelta(minutes=int(generator.integers(30 * 24 * 60)))
        yield int(generator.integers(users)), int(generator.integers(80)), 1, at


def of_next_events(home, validation_="auto", optional=(), seed=1):
    chosen = {"optional": optional, "seen": "exclude"}
    return split_likes(home, "next_events", seed=seed, plan=chosen, validation=validation_)


def test_next_events_of_many_users_evaluates_those_drawn_by_the_seed(home, log_events, monkeypatch):
    """They keep their targets and histories, and the models train on the edges of all users."""
    log_events(list(draw_days(120)))
    digests = [of_next_events(home, "latest", seed=3)]
    for seed, name, bound in ((1, "MAX_RANKED_PAIRS", 21 * 80 - 1), (2, "MAX_EVALUATED_USERS", 20)):
        monkeypatch.setattr(f"oneclass.tasks.split.protocols.{name}", bound)
        digests.append(of_next_events(home, "latest", seed=seed))
    for of_split, name in (("next_events", "test"), (NEXT_EVENTS_VALIDATION, "validation")):
        everybody, sample, other = (matrices.load_split(home, found[of_split]) for found in digests)
        whole, part = everybody.parts[name], sample.parts[name]
        assert len(part.users) == 20 < len(whole.users) and set(part.users) != set(other.parts[name].users)
        assert (part.targets != whole.targets[np.searchsorted(whole.users, part.users)]).nnz == 0
        assert (part.histories != sample.train[part.rows]).nnz == 0
        np.testing.assert_array_equal(sample.users[part.rows], part.users)
        assert (sample.train != everybody.train).nnz == 0


@pytest.mark.parametrize(("users", "timed", "kept"), [(120, True, True), (90, True, False), (9, False, False)])
def test_next_events_is_a_default_where_enough_users_return(home, log_events, caplog, users, timed, kept):
    log_events([(*event[:3], event[3] if timed else None) for event in draw_days(users)])
    found = of_next_events(home, optional=("next_events",))
    assert ({"next_events", NEXT_EVENTS_VALIDATION} <= found.keys()) == kept
    assert (query_rows(home, "select count(*) from indexed.next_events")[0][0] > 0) == kept
    if not timed:
        assert "next_events, validation: left out, for no event has a time" in caplog.text
        with pytest.raises(InputError, match="needs the times of events"):
            of_next_events(home)


@pytest.mark.parametrize(
    ("setting", "splits", "protocol"),
    [
        ("auto", ["strong_generalization", "next_events", NEXT_EVENTS_VALIDATION], "next_events"),
        ("auto", ["strong_generalization", "next_events"], "strong_generalization"),
        ("auto", ["leave_one_out", "next_events"], None),
        ("strong_generalization", ["strong_generalization", NEXT_EVENTS_VALIDATION], "strong_generalization"),
    ],
)
def test_the_protocol_that_decides_has_validation_edges(setting, splits, protocol):
    assert choose_publish_protocol(setting, splits) == protocol
    with pytest.raises(InputError, match="no validation edges of it"):
        choose_publish_protocol("next_events", ["next_events", "strong_generalization"])
