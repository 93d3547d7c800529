"""Memory estimates for fitting and scoring, used to schedule work."""

from dataclasses import dataclass

BYTES_PER_EDGE = 16  # an index and a value, by user and by item
BYTES_PER_FACTOR = 12  # a mean, a precision and what an update needs beside them
COPIES_PER_FIT = 3  # of the user arrays held by one call: input, kernel layout, output
SCORE_BLOCK_COPIES = 2  # intermediate arrays as large as a block of scores
LARGE_BLOCK_BYTES = 1 << 29  # bytes of scores if each block reads an (items, items) table, of 1.3 GB for 17,770 items


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes for a fit by blocks of users.

    Attributes:
        user: a user's arrays in the scratch store.
        items: the item arrays sent to a block.
        answer: the largest result of a block.
        here: memory of the coordinator beside users, arguments and results.
        call: memory of a call beside its edges, users, items and result.
        edge: an edge of a block in a call.
    """

    user: int
    items: int
    answer: int
    here: int
    call: int
    edge: int = 24


def estimate_fit_bytes(shape: tuple[int, int], edges: int, factors: int, matrices: int) -> int:
    """Estimate the additional memory of a fit of all users in one process.

    Args:
        shape, edges: of the (users, items) training matrix.
        factors: number of learned parameters per user and item.
        matrices: dense float32 (items, items) arrays that the fit holds at once.
    """
    users, items = shape
    return BYTES_PER_EDGE * edges + BYTES_PER_FACTOR * factors * (users + items) + 4 * matrices * items**2


def estimate_coordinator_bytes(sizes: Sizes, blocks: int, shape: tuple[int, int], matrices: int) -> int:
    """Estimate the memory of the coordinator of a fit by blocks, with a memory-mapped matrix.

    It holds all users at the start and the end; in between, the arguments and results of all blocks, and their sum.
    """
    users, items = shape
    exchange = blocks * (sizes.items + sizes.answer)
    return max(COPIES_PER_FIT * users * sizes.user, exchange + sizes.here) + sizes.items + 4 * matrices * items**2


def estimate_block_bytes(sizes: Sizes, users: int, edges: int) -> int:
    """Estimate the memory of a call for a block of this size."""
    return sizes.edge * edges + COPIES_PER_FIT * sizes.user * users + 2 * (sizes.items + sizes.answer) + sizes.call


def users_per_block(items: int, matrices: int, block: int) -> int:
    """Return the number of users in a block of scores.

    Args:
        matrices: as in `estimate_fit_bytes`; if each block reads one of them, large blocks, one after another, are
            faster.
        block: bytes of a block otherwise.
    """
    return max(1, (LARGE_BLOCK_BYTES if matrices else block) // (4 * items))


def scoring_bytes(users: int, items: int, scores: int, saved: int) -> int:
    """Estimate the additional memory of ranking all items.

    Args:
        users: number of users scored at once.
        scores: number of scores that the model has.
        saved: size of the saved fit, part of which is cached in another layout too.
    """
    return (scores + SCORE_BLOCK_COPIES) * 4 * items * users + 2 * saved
