"""The order of likes that a split keeps, against a plain transcription: times, then lines, then places within a
line.
"""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import load_ids
from tests.tasks.conftest import cut_next_events_at

DAY = datetime(2026, 3, 1)
ORDERED = SplitSettings(order=True, held_out_share=0.25, min_validation_users=0)


def draw_events(seed, timed):
    """Events of 40 users with repeats; where they have times, these do not ascend with the lines, many are equal, some
    are absent.
    """
    generator = np.random.default_rng(seed)
    for _ in range(700):
        user, item = int(generator.integers(40)), int(generator.integers(30))
        at = DAY + timedelta(days=int(generator.integers(12)))
        yield f"u{user}", f"i{item}", 1, at if timed and generator.random() < 0.95 else None


def newest_first(events):
    """{user: items}, by the first time that is known, then by the first line."""
    lines, times = {}, defaultdict(list)
    for line, (user, item, _, at) in enumerate(events):
        lines.setdefault((user, item), line)
        times[user, item] += [at] if at else []
    found = defaultdict(list)
    for user, item in sorted(lines, key=lambda pair: (min(times[pair], default=datetime.min), lines[pair])):
        found[user].insert(0, item)
    return found


def by_places(home, histories, users, items):
    """{user: items, newest first} of ordered histories."""
    ids, own, found = load_ids(home, "item"), load_ids(home, "user"), {}
    for row, user in enumerate(users):
        history = histories[row]
        found[own[user]] = [ids[items[column]] for column in history.indices[np.argsort(history.recency_ranks)]]
    return found


def restrict_order(order, histories):
    """The order of what each user of the histories has there."""
    return {user: [item for item in order[user] if item in own] for user, own in histories.items()}


def make_splits(home, protocols, settings=ORDERED):
    binarize(home, BinarizeSettings(), "run")
    return split(home, "run", SplitPlan(settings, protocols, seed=1)).digests


@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False])
def test_every_protocol_keeps_the_order_of_times_and_lines(home, log_events, timed):
    events = list(draw_events(1, timed))
    log_events(events[:400], file_id=1)
    log_events(events[400:], file_id=2)
    order = newest_first(events)
    for protocol, digest in make_splits(home, ["strong_generalization", "leave_one_out"]).items():
        stored = matrices.load_split(home, digest)
        assert (stored.recency_ranks >= 0).all() and stored.recency_ranks.dtype == np.int32
        found = by_places(home, stored.histories, stored.users, stored.items)
        assert found == restrict_order(order, found) and sum(map(len, found.values())) == stored.train.nnz > 200, (
            protocol
        )
        for part in stored.parts.values():
            of_part = by_places(home, part.histories, part.users, stored.items)
            assert of_part == restrict_order(order, of_part) and of_part, protocol


def test_adjacency_lists_are_in_the_order_of_their_places(home, tmp_path):
    own = {user: [int(item) for item in np.random.default_rng(user).permutation(20)[:12]] for user in range(15)}
    files = [tmp_path / "train.txt", tmp_path / "test.txt"]
    files[0].write_text("".join(f"{user} {' '.join(map(str, items[:10]))}\n" for user, items in own.items()))
    files[1].write_text("".join(f"{user} {' '.join(map(str, items[10:]))}\n" for user, items in own.items()))
    lists = Dataset(name="lists", title="lists", layout="adjacency")
    train, test = ([one.file_id] for one in ingest(home, lists, files, "run"))
    binarize(home, BinarizeSettings(), "run")
    settings = SplitSettings(order=True, validation="latest")
    digest = split(home, "run", SplitPlan(settings, ["given"], seed=1, given_files=(train, test))).digests["given"]
    stored = matrices.load_split(home, digest)
    found = by_places(home, stored.parts["test"].histories, stored.users, stored.items)
    assert found == {str(user): [str(item) for item in items[9::-1]] for user, items in own.items()}
    cut = load_validation(home, "given", digest, 1).part.histories  # without the last two of each
    found = by_places(home, cut, stored.users, stored.items)
    assert found == {str(user): [str(item) for item in items[7::-1]] for user, items in own.items()}
    sampled = load_validation(
        home, "given", digest, 1, edges=60
    ).part.histories  # some users, and the items that they have
    for row in range(sampled.shape[0]):
        assert len(sampled[row].recency_ranks) == sampled[row].nnz > 0


def test_nothing_from_the_cut_on_weighs_in_under_next_events(home, log_events, monkeypatch):
    events = [event for event in draw_events(2, timed=True) if event[3]]
    next_from = date(2026, 3, 9)
    cut_next_events_at(monkeypatch, next_from)
    before = [event for event in events if event[3].date() < next_from]
    assert len({event[:2] for event in events} & {event[:2] for event in before}) < len(events) - 50
    log_events(events)
    digests = make_splits(home, ["next_events"], SplitSettings(order=True))
    stored = matrices.load_split(home, digests["next_events"])
    order = newest_first(before)  # of a log that ends there
    found = by_places(home, stored.parts["test"].histories, stored.parts["test"].users, stored.items)
    assert found == {user: order[user] for user in found} and len(found) > 20
