"""Seen items: what `publish.seen` chooses, and next_events with them, against a recount in plain Python."""

import json
import re
import shutil
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.models.evaluation.ranks_apart import NEW, REPEATED
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, runs
from tests.conftest import home_in, load_entries, load_ids, log_into, query_rows
from tests.tasks.conftest import cut_next_events_at, train_model

CUT = date(2026, 5, 1)
SETTINGS = SplitSettings()


@pytest.fixture(autouse=True, scope="module")
def cut():
    with pytest.MonkeyPatch.context() as patch:
        cut_next_events_at(patch, CUT)
        yield


def draw_events(loyalty, users=120, items=40, seed=5):
    """Events of users who take an item that they had before with the probability `loyalty`, over 150 days."""
    random, events = np.random.default_rng(seed), []
    for user in range(users):
        taken, times = [], np.sort(random.uniform(0, 150 * 86400, random.integers(2, 25)))
        for seconds in times:
            again = [item for item in taken if random.random() < loyalty]
            item = again[0] if again else int(random.zipf(1.4)) % items
            if loyalty or item not in taken:
                events.append((f"u{user}", f"i{item}", 1, datetime(2026, 1, 1) + timedelta(seconds=int(seconds))))
                taken.append(item)
    return events


def recount_pairs(events, cut=CUT):
    """(pairs before the cut, pairs of known users and items from then on, all pairs from then on)."""
    before = {event[:2] for event in events if event[3].date() < cut}
    after = {event[:2] for event in events if event[3].date() >= cut}
    users, items = ({pair[side] for pair in before} for side in (0, 1))
    known = {(user, item) for user, item in after if user in users and item in items}
    return before, known, after


def split_next(home, seen="auto", settings=SETTINGS, run_id="run"):
    return split(home, run_id, SplitPlan(settings, ["next_events"], seed=1, seen=seen))


@pytest.fixture(scope="module")
def returning_once(tmp_path_factory):
    """(home, events) of users who come back to items, binarized."""
    home, events = home_in(tmp_path_factory.mktemp("returning")), draw_events(loyalty=0.2)
    log_into(home, events)
    binarize(home, BinarizeSettings(), "run")
    return home, events


@pytest.fixture
def returning(home, returning_once):
    """The events of the log that the test's home has."""
    shutil.copytree(returning_once[0].root, home.root)
    return returning_once[1]


def test_auto_includes_seen_items_if_users_come_back_to_them(home, returning, caplog):
    before, known, _ = recount_pairs(returning)
    repeated = known & before
    found = split_next(home)
    assert found.seen_items.included
    share, users = 100 * len(repeated) / len(known), len({user for user, _ in repeated})
    assert share > 20 and users > 50
    figures = (
        f"{share:.1f} % of {len(known)} pairs of known users and items from {CUT} on are repeats, of {users} users"
    )
    assert found.seen_items.reason.startswith(figures)
    with caplog.at_level("INFO"):
        assert split_next(home) == found  # of the stored result
    assert f"seen items: include; {figures}" in caplog.text


def test_a_setting_overrides_the_log_and_the_choice_is_recorded_with_the_run(home, returning):
    with runs.record_run(home, "run", "backfill", {"publish": {"seen": "exclude"}, "since": None}):
        assert split_next(home, "exclude").seen_items.choice == "exclude"
    ((settings,),) = query_rows(home, "select settings from operations.runs")
    assert json.loads(settings) == {"publish": {"seen": "exclude"}, "since": None, "seen_items": "exclude"}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (draw_events(loyalty=0), "0.0 % of"),  # no pair comes again
        (draw_events(loyalty=0.2, users=40), "users; lists include seen items from 5 % and 50 users on"),  # too few
        (
            [(user, item, 1) for user, item, *_ in draw_events(loyalty=0.2)],
            "no event has a time.* publish.seen=include",
        ),
    ],
)
def test_auto_excludes_seen_items_otherwise(home, log_events, events, reason):
    log_events(events)
    binarize(home, BinarizeSettings(), "run")
    found = split(home, "run", SplitPlan(SETTINGS, ["leave_one_out"], seed=1)).seen_items
    assert not found.included and re.search(reason, found.reason)


@pytest.mark.parametrize("seen", ["include", "exclude"])
def test_seen_items_are_targets_where_they_are_included_and_train(home, returning, seen):
    before, known, after = recount_pairs(returning)
    stored = matrices.load_split(home, split_next(home, seen).digests["next_events"])
    roles = {(user, item): role for user, item, role in query_rows(home, "from splits.next_events")}
    expected = dict.fromkeys(after - known, "dropped") | dict.fromkeys(known, "next") | dict.fromkeys(before, "train")
    part = stored.parts["test"]
    if seen == "exclude":
        assert roles == expected and pairs_of(home, stored, part) == known - before
        assert not part.seen_items and part.excluded is part.histories
        return
    assert roles == expected | dict.fromkeys(known & before, "again") and pairs_of(home, stored, part) == known
    assert part.seen_items and part.excluded.shape == part.targets.shape and part.excluded.nnz == 0
    counted = Counter(event[:2] for event in returning if event[3].date() < CUT)
    assert load_entries(home, stored.train, stored.users, stored.items) == counted


def pairs_of(home, stored, part):
    """The (user_id, item_id) targets of a part."""
    return set(load_entries(home, part.targets, part.users, stored.items))


def test_validation_edges_by_time_include_repeats_before_the_cut_alone(home, returning, monkeypatch):
    monkeypatch.setattr("oneclass.tasks.split.protocols.NEXT_SHARE", 0.3)
    firsts = {}
    for user, item, _, time in returning:
        firsts[user, item] = min(firsts.get((user, item), time), time)
    days = sorted(time.date() for time in firsts.values() if time.date() < CUT)
    earlier = days[int(np.ceil(0.7 * len(days))) - 1]
    until_cut = [event for event in returning if event[3].date() < CUT]
    before, known, _ = recount_pairs(until_cut, earlier)
    settings = SplitSettings(validation="latest")
    for seen, expected in (("include", known), ("exclude", known - before)):
        digests = split_next(home, seen, settings).digests
        stored = matrices.load_split(home, digests["next_events_validation"])
        part = stored.parts["validation"]
        assert pairs_of(home, stored, part) == expected and part.seen_items == (seen == "include")
        assert part.targets.shape[0] == len({user for user, _ in expected})


def test_metrics_count_repeats_and_tell_new_and_repeated_targets_apart(home, returning):
    """Popularity, ranked by sorting in plain Python."""
    before, known, _ = recount_pairs(returning)
    digest = split_next(home, "include").digests["next_events"]
    stored = matrices.load_split(home, digest)
    users, items = load_ids(home, "user"), load_ids(home, "item")
    popular = Counter(item for _, item in before)
    columns = {items[index]: column for column, index in enumerate(stored.items)}
    ranking = sorted(popular, key=lambda item: (-popular[item], columns[item]))

    def ndcg(candidates, wanted):
        if not wanted:
            return None
        places = [place for place, item in enumerate(candidates[:100]) if item in wanted]
        ideal = sum(1 / np.log2(place + 2) for place in range(min(100, len(wanted))))
        return sum(1 / np.log2(place + 2) for place in places) / ideal

    expected = defaultdict(list)
    for index in stored.parts["test"].users:
        own = {item for user, item in before if user == users[index]}
        wanted = {item for user, item in known if user == users[index]}
        expected["ndcg@100"].append(ndcg(ranking, wanted))
        expected[NEW].append(ndcg([item for item in ranking if item not in own], wanted - own))
        expected[REPEATED].append(ndcg([item for item in ranking if item in own], wanted & own))
    fits = {}
    for model in ("popularity", "mrf_dense"):
        fits[model] = train_model(home, digest, model, protocol="next_events").digest
    evaluate(home, "run", "next_events", [(digest, fits)])
    table = {
        (model, metric): (value, count)
        for model, metric, value, count in query_rows(
            home, "select model, metric, value, users from evaluation.metrics"
        )
    }
    for metric, of_users in expected.items():
        present = [value for value in of_users if value is not None]
        assert table["popularity", metric] == (pytest.approx(np.mean(present)), len(present))
        assert None in of_users or metric == "ndcg@100"
    compared = query_rows(home, "select metric, users from evaluation.comparisons")
    assert {(metric, table["popularity", metric][1]) for metric in (NEW, REPEATED)} <= set(compared)
