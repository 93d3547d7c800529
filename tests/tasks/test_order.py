"""The order of likes that a split keeps, against a plain transcription: times, then lines, then places within a
line.
"""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.models.evaluation.metrics import average_over_users, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import ALL_EDGES
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


@pytest.mark.slow
def test_without_the_setting_the_matrices_are_those_of_before(home, log_events):
    log_events(list(draw_events(3, timed=True)))
    protocols = ["strong_generalization", "leave_one_out", "next_events"]
    plain = make_splits(home, protocols, SplitSettings(held_out_share=0.25))
    ordered = make_splits(home, protocols)
    assert make_splits(home, protocols, SplitSettings(held_out_share=0.25)) == plain
    for protocol in [*protocols, ALL_EDGES]:
        folders = [home.matrices / digests[protocol] for digests in (plain, ordered)]
        files = [{file.name: file.read_bytes() for file in folder.glob("*.npy")} for folder in folders]
        assert {name: files[1].get(name) for name in files[0]} == files[0]
        assert {name.rpartition("_")[2] for name in files[1].keys() - files[0].keys()} == {"places.npy"}
        assert matrices.load_split(home, plain[protocol]).recency_ranks is None


def test_an_evaluation_weighs_by_the_order_of_the_split(home, log_events):
    log_events(list(draw_events(4, timed=True)))
    digests = make_splits(home, ["strong_generalization", "leave_one_out"])
    kind = MODELS["mrf_dense"]
    for protocol in ("strong_generalization", "leave_one_out"):
        stored = matrices.load_split(home, digests[protocol])
        part = stored.parts["test"]
        model = kind(kind.Settings(l2=5.0, intercept=True, recency_exponent=1.0)).fit(stored.train)
        dense = np.zeros(part.histories.shape)
        for row in range(len(dense)):
            history = part.histories[row]
            dense[row, history.indices] = 1 / (1.0 + history.recency_ranks)
        by_hand = (dense @ model.weights + model.offset).astype(np.float32)
        expected = compute_user_metrics(rank_targets(by_hand, part.histories, part.targets))
        found = average_over_users(rank_part_targets(model, "score", part).of_users)["mean_rank"].value
        assert found == pytest.approx(expected["mean_rank"].mean(), abs=2e-3)
        alike = ((dense > 0) @ model.weights + model.offset).astype(np.float32)
        plain = compute_user_metrics(rank_targets(alike, part.histories, part.targets))
        assert abs(plain["mean_rank"].mean() - found) > 5e-3
