"""Memory estimates for fitting and scoring, used to schedule work."""

from dataclasses import dataclass

BYTES_PER_EDGE = 16  # an index and a value, by user and by item
BYTES_PER_FACTOR = 12  # a mean, a precision and what an update needs beside them
COPIES_PER_FIT = 3  # of the user arrays held by one call: input, kernel layout, output
SCORE_BLOCK_COPIES = 2  # blocks as large: what the scores are made from
LARGE_BLOCK_BYTES = 1 << 29  # bytes of scores, where each block reads an (items, items) table: at 17,770 items 1.3 GB


@dataclass(frozen=True)
class Sizes:
    """Bytes of what a fit by blocks of users holds.

    Attributes:
        user: a user's arrays, as they lie with a block.
        items: what a block is sent of all items.
        answer: the largest answer of a block.
        here: what the coordinator holds beside users, calls and answers.
        call: what a call holds beside its edges, users, items and answer.
        edge: an edge of a block in a call.
    """

    user: int
    items: int
    answer: int
    here: int
    call: int
    edge: int = 24


def estimate_fit_bytes(shape: tuple[int, int], edges: int, factors: int, matrices: int) -> int:
    """Bytes that a fit of all users in one process takes, beside what the process has anyway.

    Args:
        shape, edges: of the (users, items) training matrix.
        factors: numbers that are learned of each user and each item.
        matrices: dense float32 (items, items) arrays that the fit holds at once.
    """
    users, items = shape
    return BYTES_PER_EDGE * edges + BYTES_PER_FACTOR * factors * (users + items) + 4 * matrices * items**2


def estimate_coordinator_bytes(sizes: Sizes, blocks: int, shape: tuple[int, int], matrices: int) -> int:
    """Bytes that a fit by blocks takes in the process that submits it, where the matrix is mapped from a file.

    All users are there at the beginning and the end; between these, of each block a call and an answer, and their sum.
    """
    users, items = shape
    exchange = blocks * (sizes.items + sizes.answer)
    return max(COPIES_PER_FIT * users * sizes.user, exchange + sizes.here) + sizes.items + 4 * matrices * items**2


def estimate_block_bytes(sizes: Sizes, users: int, edges: int) -> int:
    """Bytes that a call of a block of so many users and edges takes."""
    return sizes.edge * edges + COPIES_PER_FIT * sizes.user * users + 2 * (sizes.items + sizes.answer) + sizes.call


def users_per_block(items: int, matrices: int, block: int) -> int:
    """Users of a block of scores.

    Args:
        matrices: as in `estimate_fit_bytes`; where each block reads one of them, blocks are large and quicker one after another.
        block: bytes of a block otherwise.
    """
    return max(1, (LARGE_BLOCK_BYTES if matrices else block) // (4 * items))


def scoring_bytes(users: int, items: int, scores: int, saved: int) -> int:
    """Bytes that it takes to rank all items, beside what the process has anyway.

    Args:
        users: scored at once.
        scores: kinds of scores that the model has.
        saved: size of the saved fit, of which some is kept in another form too.
    """
    return (scores + SCORE_BLOCK_COPIES) * 4 * items * users + 2 * saved
