"""Runs of equal load against a cut by hand, one row after the other."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneclass.models.numerics.partition import partition_by_budget, partition_evenly, partition_rows, partition_shards

DEGREES = st.lists(st.integers(0, 30), min_size=1, max_size=40)


def starts_of(degrees):
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)


def cut(degrees, count, row_cost, whole):
    """Run k ends in front of the first row whose load so far reaches k shares of the total."""
    loads = [sum(degrees[:row]) + row_cost * row for row in range(len(degrees) + 1)]
    bounds = [0]
    for k in range(1, count):
        share = Fraction(loads[-1] * k, count)
        share = share.numerator // share.denominator if whole else share
        bounds.append(next(row for row, load in enumerate(loads) if load >= share))
    return [*bounds, len(degrees)]


@given(DEGREES, st.sampled_from([1, 2, 8, 16]), st.integers(0, 9), st.booleans())
def test_runs_end_where_the_load_reaches_their_share(degrees, count, row_cost, whole):
    bounds = partition_rows(starts_of(degrees), count, row_cost, whole=whole)
    assert bounds.dtype == np.int64
    assert bounds.tolist() == cut(degrees, count, row_cost, whole)


@given(DEGREES)
def test_no_run_is_heavier_than_a_share_and_its_heaviest_row(degrees):
    bounds = partition_rows(starts_of(degrees), 5, 3)
    loads = [sum(degrees[first:last]) + 3 * (last - first) for first, last in pairwise(bounds)]
    assert max(loads) <= (sum(degrees) + 3 * len(degrees)) / 5 + max(degrees) + 3


@given(DEGREES, st.sampled_from([1, 4, 64]))
def test_shards_cover_every_row_once_and_none_is_empty(degrees, count):
    bounds = partition_shards(starts_of(degrees), count)
    assert bounds[0] == 0 and bounds[-1] == len(degrees)
    assert (np.diff(bounds) > 0).all() and len(bounds) <= count + 1
    assert set(bounds.tolist()) == set(cut(degrees, count, 8, whole=False))


@pytest.mark.parametrize("rows", [0, 1, 7, 16, 1000])
def test_even_runs_differ_by_one_row_at_most(rows):
    bounds = partition_evenly(rows, 16)
    assert len(bounds) == 17 and bounds[0] == 0 and bounds[-1] == rows
    assert bounds.tolist() == [rows * k // 16 for k in range(17)]


@given(st.lists(st.integers(0, 30), max_size=2))
def test_one_row_is_one_shard(degrees):
    assert (
        partition_shards(starts_of(degrees)).tolist() == np.unique(partition_rows(starts_of(degrees), 64, 8)).tolist()
    )


def test_runs_within_a_room_are_as_long_as_they_can_be_and_a_larger_row_is_alone():
    found = [(part.start, part.stop) for part in partition_by_budget(np.array([3, 4, 1, 9, 2, 2, 2]), 5)]
    assert found == [(0, 1), (1, 3), (3, 4), (4, 6), (6, 7)]
    assert list(partition_by_budget(np.zeros(0, dtype=np.int64), 5)) == []
