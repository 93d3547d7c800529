"""What a protocol's models could learn from the days after a target's, against a count in plain Python."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse

PROTOCOLS = ["strong_generalization", "leave_one_out", "next_events"]
ROLES = {  # the training edges, and the targets, of each protocol
    "strong_generalization": ("role = 'fit'", "part = 'test' and role = 'target'"),
    "leave_one_out": ("role = 'train'", "role = 'held_out'"),
    "next_events": ("role = 'train'", "role = 'next'"),
}


@pytest.fixture
def split_log(home, log_events):
    """A log of sixty users over thirty days, some events without a time, split by all protocols."""
    generator = np.random.default_rng(5)
    log_events(
        [
            (
                int(generator.integers(60)),
                int(generator.integers(50)),
                1,
                datetime(2026, 3, 1) + timedelta(hours=int(generator.integers(30 * 24))) if number % 9 else None,
            )
            for number in range(1200)
        ]
    )
    binarize(home, BinarizeSettings(), "run")
    split(home, SplitSettings(), "run", protocols=PROTOCOLS, seed=1)
    return home


def days_and_items(connection, protocol, where):
    return connection.execute(
        f"select first_at::date, item_index from indexed.{protocol} join indexed.interactions using "
        f"(user_index, item_index) where {where} and first_at is not null"
    ).fetchall()


def test_later_edges_and_items_are_those_of_a_count(split_log):
    with warehouse.open_warehouse(split_log, read_only=True) as connection:
        found = {row[0]: row[1:] for row in connection.execute("from diagnostics.leakage").fetchall()}
        assert set(found) == set(PROTOCOLS)
        for protocol, (training, targets) in ROLES.items():
            trained = days_and_items(connection, protocol, training)
            first_days = {item: min(day for day, of in trained if of == item) for _, item in trained}
            held_out = [day for day, _ in days_and_items(connection, protocol, targets)]
            edges = np.mean([sum(day > at for day, _ in trained) for at in held_out])
            items = np.mean([sum(day > at for day in first_days.values()) for at in held_out])
            counts = len(held_out), len(trained), len(first_days)
            assert found[protocol] == (*counts, pytest.approx(edges), pytest.approx(items))
    assert found["next_events"][-2:] == (0, 0) and min(found["strong_generalization"][-2:]) > 0
