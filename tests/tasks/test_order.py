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


def draw_events(known, values):
    """Events of 40 users with repeats, in no order of their times, many of which are equal and some absent."""
    generator = np.random.default_rng(1)
    for _ in range(700):
        user, item, day = (int(generator.integers(top)) for top in (40, 30, 12))
        at = DAY + timedelta(days=day) if generator.random() < known else None
        yield f"u{user}", f"i{item}", int(generator.integers(*values)), at


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


def test_adjacency_lists_are_in_the_order_of_their_places(home, tmp_path):
    own = {user: [int(item) for item in np.random.default_rng(user).permutation(20)[:10]] for user in range(15)}
    digest = split_lines(home, tmp_path, own, "latest")
    stored = matrices.load_split(home, digest)
    found = by_places(home, stored.parts["test"].histories, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[9::-1]] for user, items in own.items()}
    cut = load_validation(home, digest, 1).parts["validation"].histories  # without the last two of each
    found = by_places(home, cut, stored.users, stored.items)
    assert found == {str(user): [{str(item)} for item in items[7::-1]] for user, items in own.items()}


def ages_by_pair(likes, last):
    """{(user, item): ages in days, ascending} of the likes up to a day."""
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


@pytest.mark.parametrize(
    ("known", "values", "threshold"),
    [(0.95, (0, 5), 1), (1, (-1, 4), 1e-9), (0, (1, 2), 1)],
    ids=["values count", "values add up", "no times"],
)
def test_every_protocol_has_the_order_of_likes_and_their_ages_as_of_the_end_of_its_training(
    home, log_events, monkeypatch, known, values, threshold
):
    cut_next_events_at(monkeypatch, NEXT_FROM)
    events = list(draw_events(known, values))
    log_events(events[:400], file_id=1)
    log_events(events[400:], file_id=2)
    likes = [event for event in events if event[2] >= threshold]
    firsts, last = find_firsts(likes), max((at.date() for *_, at in likes if at), default=None)
    counted, protocols = BinarizeSettings(sum_values=threshold < 1), PROTOCOLS if known else PROTOCOLS[:2]
    of_split = {"likes": counted, "plan": {"times": True}, "order": True, "held_out_share": 0.25}
    for protocol, digest in split_likes(home, *protocols, **of_split).items():
        stored = matrices.load_split(home, digest)
        until = NEXT_FROM - timedelta(days=1) if protocol == "next_events" else last
        ages = ages_by_pair(likes, until) if known else {}
        assert stored.train.nnz > 100 and stored.recency_ranks.dtype == np.int32
        parts = [(part.histories, part.users) for part in stored.parts.values()]
        for histories, users in [(stored.histories, stored.users), *parts]:
            found = by_places(home, histories, users, stored.items)
            assert found and found == newest_first(firsts, found), protocol
            if known:
                found = stored_ages(home, histories, users, stored.items)
                assert len(found) == histories.nnz and found == {pair: ages[pair] for pair in found}, protocol
            else:
                assert histories.event_ages is None


LISTS = Dataset(name="lists", title="lists", layout="adjacency")


def draw_lines(seed, *, drifting=False, users=300, items=200):
    """{user: its items in their order}; a drifting line has items whose places move up, of which no id tells."""
    generator = np.random.default_rng(seed)
    names = generator.permutation(items)
    found = {}
    for user in range(users):
        length = int(generator.integers(1, 40))
        at = generator.choice(items, size=length, replace=False)
        if drifting:
            start = generator.integers(items - 60)
            at = start + np.argsort(np.argsort(np.arange(60) + generator.normal(0, 12, 60)))[:length]
            at = np.array(list(dict.fromkeys(at)))
        found[user] = names[at].tolist()
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
    train = draw_lines(1) | {900: [3], 901: [4, 5], 902: [7, 6, 7, 8, 6, 9]}
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
    drifting = draw_lines(seed, drifting=True)
    for lines, drifts, words in (
        (drifting, True, "given, validation: by the ends of lines, for items drift along them (z = "),
        (draw_lines(seed), False, "given, validation: drawn at random, for items do not drift along lines (z = "),
        ({user: sorted(own) for user, own in drifting.items()}, False, "for lines are sorted by item id"),
    ):
        caplog.clear()
        stored = matrices.load_split(home, split_lines(home, tmp_path, lines))
        assert (stored.latest_mask is not None) == drifts and words in caplog.text


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


def draw_days(users):
    generator = np.random.default_rng(1)
    for _ in range(60 * users):
        at = DAY + timedelta(minutes=int(generator.integers(30 * 24 * 60)))
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


def test_the_protocol_that_decides_has_validation_edges():
    strong, both = "strong_generalization", ["strong_generalization", "next_events"]
    assert choose_publish_protocol("auto", [*both, NEXT_EVENTS_VALIDATION]) == "next_events"
    assert choose_publish_protocol("auto", both) == strong
    assert choose_publish_protocol("auto", ["leave_one_out", "next_events"]) is None
    assert choose_publish_protocol(strong, [strong, NEXT_EVENTS_VALIDATION]) == strong
    with pytest.raises(InputError, match="no validation edges of it"):
        choose_publish_protocol("next_events", both)
