"""The hash of many texts at once against Python's own, for texts of one block and of several."""

import hashlib

import numpy as np
import pytest

from oneclass.models.numerics.md5 import HASHES_AT_ONCE, select_lowest_md5


def texts(given):
    """The bytes of all texts, and 0 and where each ends."""
    encoded = [text.encode() for text in given]
    ends = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends


def number(text):
    return int.from_bytes(hashlib.md5(text.encode()).digest(), "little")


@pytest.mark.parametrize("lists", [1, 3, 500])
def test_the_lowest_of_each_list_is_that_of_hashlib(lists):
    generator = np.random.default_rng(lists)
    stems = [f"{one}:é" * (1 + one % 13) for one in range(lists)]  # of 4 bytes up to several blocks
    names = [str(member) * (1 + member % 40) for member in range(300)]
    starts = np.concatenate([[0], np.cumsum(generator.integers(0, 40, lists) * (np.arange(lists) % 5 > 0))])
    members = generator.integers(0, len(names), starts[-1]).astype(np.int32)
    found = select_lowest_md5(starts, members, *texts(stems), *texts(names))
    for one, stem in enumerate(stems):
        own = members[starts[one] : starts[one + 1]]
        assert found[one] == (min(own, key=lambda member: number(stem + names[member])) if len(own) else -1)


@pytest.mark.parametrize("size", [0, 54, 55, 56, 63, 64, 118, 119, 120])
def test_texts_at_the_bounds_of_blocks(size):
    names = [chr(97 + member % 26) * size + str(member) for member in range(HASHES_AT_ONCE + 2)]
    starts, members = np.array([0, len(names)]), np.arange(len(names), dtype=np.int32)
    expected = min(range(len(names)), key=lambda member: number("x" + names[member]))
    assert select_lowest_md5(starts, members, *texts(["x"]), *texts(names)).tolist() == [expected]
