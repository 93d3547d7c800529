"""MD5 (RFC 1321) of many short texts at once: one round of a run of texts after the other, so that the compiler makes
vectors of it.

A seventh of the time of hashing one text after the other. DuckDB's `md5_number` is the same number.
"""

import numpy as np
from numba import njit

HASHES_AT_ONCE = 128  # texts that are hashed at once: state and words of so many stay in the first cache
INITIAL_STATE = np.array([0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476], dtype=np.uint32)
SINE_CONSTANTS = np.floor(np.abs(np.sin(np.arange(1, 65))) * 2**32).astype(np.uint32)  # T of the RFC
ROTATIONS = (
    np.repeat([[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]], 4, axis=0).ravel().astype(np.uint32)
)
WORD_ORDER = np.concatenate([(step * np.arange(16) + first) % 16 for step, first in ((1, 0), (5, 1), (3, 5), (7, 0))])


def select_lowest_md5(
    starts: np.ndarray,
    members: np.ndarray,
    stems: np.ndarray,
    stem_ends: np.ndarray,
    names: np.ndarray,
    name_ends: np.ndarray,
) -> np.ndarray:
    """Of each list the member for which the MD5 of the list's stem and the member's name is lowest.

    Args:
        starts: int64 (lists + 1,), where each list begins in `members`.
        members: int32, each list's members, from 0.
        stems, names: uint8, the UTF-8 bytes of the texts of all lists, and of all members, one after the other.
        stem_ends, name_ends: int64 (texts + 1,), 0 and where each text ends.

    Returns:
        int32 (lists,); -1 where a list is empty.
    """
    found = np.full(len(starts) - 1, -1, dtype=np.int32)
    if len(members):
        longest = np.diff(stem_ends).max() + np.diff(name_ends).max()
        texts = np.zeros((HASHES_AT_ONCE + 1, 8 * _blocks(longest)), dtype=np.uint64)
        _lowest(
            starts,
            members,
            stems,
            stem_ends,
            names,
            name_ends,
            texts,
            texts.view(np.uint8),
            texts.view(np.uint32),
            found,
        )
    return found


@njit(cache=True, nogil=True)
def _lowest(starts, members, stems, stem_ends, names, name_ends, texts, as_bytes, as_words, found):
    """Args:
    texts: zeros, one row a text and, as the last, the stem of the list at hand; and the same memory by bytes and words.
    """
    of_lane, member, blocks = (
        np.empty(HASHES_AT_ONCE, np.int64),
        np.empty(HASHES_AT_ONCE, np.int64),
        np.empty(HASHES_AT_ONCE, np.int64),
    )
    state, words, best = (
        np.empty((4, HASHES_AT_ONCE), np.uint32),
        np.empty((16, HASHES_AT_ONCE), np.uint32),
        np.empty((4, 1), np.uint32),
    )
    lane, width, best_of = 0, texts.shape[1], -1
    for one in range(len(found)):
        stem = stem_ends[one + 1] - stem_ends[one]
        for byte in range(8 * width):
            as_bytes[HASHES_AT_ONCE, byte] = stems[stem_ends[one] + byte] if byte < stem else 0
        for at in range(starts[one], starts[one + 1]):
            own = members[at]
            for word in range(width):
                texts[lane, word] = texts[HASHES_AT_ONCE, word]
            size = stem
            for byte in range(name_ends[own], name_ends[own + 1]):
                as_bytes[lane, size] = names[byte]
                size += 1
            as_bytes[lane, size] = 0x80
            of_lane[lane], member[lane], blocks[lane] = one, own, _blocks(size)
            texts[lane, 8 * blocks[lane] - 1] = 8 * size
            lane += 1
            if lane == HASHES_AT_ONCE or at + 1 == starts[-1]:
                _hash(as_words, blocks, lane, state, words)
                for done in range(lane):
                    if of_lane[done] != best_of or _is_lower(state, done, best):
                        best_of = of_lane[done]
                        found[best_of] = member[done]
                        for word in range(4):
                            best[word, 0] = state[word, done]
                lane = 0


@njit(cache=True, nogil=True)
def _blocks(size):
    """Blocks of 64 bytes that a text of so many bytes has with its end mark and its length."""
    return (size + 8) // 64 + 1


@njit(cache=True, nogil=True)
def _is_lower(state, lane, best):
    """Whether a hash, a number of 128 bits whose lowest word comes first, is below the best one."""
    for word in (3, 2, 1, 0):
        if state[word, lane] != best[word, 0]:
            return state[word, lane] < best[word, 0]
    return False


@njit(cache=True, nogil=True)
def _hash(texts, blocks, lanes, state, words):
    """Leave the MD5 of the first texts in `state`, by words, the lowest first."""
    for word in range(4):
        for lane in range(HASHES_AT_ONCE):
            state[word, lane] = INITIAL_STATE[word]
    for block in range(texts.shape[1] // 16):
        for lane in range(lanes):
            for word in range(16):
                words[word, lane] = texts[lane, 16 * block + word]
        added = _rounds(state, words)
        for lane in range(lanes):
            if block < blocks[lane]:
                for word in range(4):
                    state[word, lane] += added[word, lane]


@njit(cache=True, nogil=True)
def _rounds(state, words):
    work = state.copy()
    for step in range(64):
        a, b, c, d = work[-step % 4], work[(1 - step) % 4], work[(2 - step) % 4], work[(3 - step) % 4]
        own, added, turn = words[WORD_ORDER[step]], SINE_CONSTANTS[step], ROTATIONS[step]
        if step < 16:
            for i in range(HASHES_AT_ONCE):
                a[i] = b[i] + _rotate_left(np.uint32(a[i] + (d[i] ^ (b[i] & (c[i] ^ d[i]))) + own[i] + added), turn)
        elif step < 32:
            for i in range(HASHES_AT_ONCE):
                a[i] = b[i] + _rotate_left(np.uint32(a[i] + (c[i] ^ (d[i] & (b[i] ^ c[i]))) + own[i] + added), turn)
        elif step < 48:
            for i in range(HASHES_AT_ONCE):
                a[i] = b[i] + _rotate_left(np.uint32(a[i] + (b[i] ^ c[i] ^ d[i]) + own[i] + added), turn)
        else:
            for i in range(HASHES_AT_ONCE):
                a[i] = b[i] + _rotate_left(np.uint32(a[i] + (c[i] ^ (b[i] | ~d[i])) + own[i] + added), turn)
    return work


@njit(cache=True, nogil=True, inline="always")
def _rotate_left(word, turn):
    return np.uint32((word << turn) | (word >> np.uint32(np.uint32(32) - turn)))
