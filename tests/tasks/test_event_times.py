"""With times the matrices have the age of each event, as of the last day that is trained on."""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices
from tests.conftest import load_ids
from tests.tasks.conftest import cut_next_events_at

DAY = datetime(2026, 3, 1)
PROTOCOLS = ["strong_generalization", "leave_one_out", "next_events"]
NEXT_FROM = date(2026, 3, 9)
SHARED = SplitSettings(held_out_share=0.25)


@pytest.fixture(autouse=True)
def cut(monkeypatch):
    cut_next_events_at(monkeypatch, NEXT_FROM)


def draw_events(seed, *, timed=True, known=0.95):
    """Events of 40 users with repeats, some below the threshold, some without a time, in no order."""
    generator = np.random.default_rng(seed)
    for _ in range(700):
        user, item, value = (int(generator.integers(top)) for top in (40, 30, 5))
        at = DAY + timedelta(minutes=int(generator.integers(12 * 1440)))
        yield f"u{user}", f"i{item}", value, at if timed and generator.random() < known else None


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


def make_splits(home, likes):
    binarize(home, likes, "run")
    return split(home, "run", SplitPlan(SHARED, PROTOCOLS, 1, LikeSelection(likes), times=True)).digests


@pytest.mark.parametrize("sums", [False, True], ids=["values count", "values add up"])
def test_every_protocol_has_the_ages_as_of_the_end_of_its_training(home, log_events, sums):
    events = [(user, item, value - sums, at) for user, item, value, at in draw_events(1, known=1.0 if sums else 0.95)]
    log_events(events[:400], file_id=1)
    log_events(events[400:], file_id=2)
    last = max(at for *_, at in events if at).date()
    for protocol, digest in make_splits(home, BinarizeSettings(sum_values=sums)).items():
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
    binarize(home, BinarizeSettings(), "run")
    digests = split(home, "run", SplitPlan(SHARED, PROTOCOLS[:2], seed=1, times=times)).digests
    for digest in digests.values():
        assert matrices.load_split(home, digest).event_ages is None
        assert not [*(home.matrices / digest).glob("*event*")]
