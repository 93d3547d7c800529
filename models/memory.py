"""About how much memory a fit takes, or ranking by it, for whoever has to find room for it."""

from typing import TYPE_CHECKING

from models.settings import ModelSettings
from models.user_blocks import Sizes

if TYPE_CHECKING:
    from models.base import Model

BYTES_OF_EDGE = 16  # an index and a value, by user and by item
BYTES_OF_FACTOR = 12  # a mean, a precision and what an update needs beside them
COPIES = 3  # of users: in a call as read, as the kernels take them and as written; at the beginning as drawn, too
BESIDE_SCORES = 2  # blocks as large: what the scores are made from
LARGE_BLOCK = 1 << 29  # bytes of scores, where each block reads an (items, items) table: at 17,770 items 1.3 GB


def fit_bytes(model: "type[Model]", settings: ModelSettings, shape: tuple[int, int], edges: int) -> int:
    """About how many bytes a fit in one process takes, beside what the process has anyway.

    Args:
        shape, edges: of the (users, items) training matrix.
    """
    users, items = shape
    if by_blocks(settings):
        blocks = settings.blocks
        return coordinator_bytes(model, settings, shape) + block_bytes(
            settings, -(-users // blocks), items, -(-edges // blocks)
        )
    factors = getattr(settings, "factors", 0) * (users + items)
    return BYTES_OF_EDGE * edges + BYTES_OF_FACTOR * factors + 4 * model.matrices_on(items, edges) * items**2


def by_blocks(settings: ModelSettings) -> bool:
    """Whether the users are cut into blocks."""
    return getattr(settings, "blocks", 1) > 1


def coordinator_bytes(model: "type[Model]", settings: ModelSettings, shape: tuple[int, int]) -> int:
    """About how many bytes a fit by blocks takes in the process that begins it, where the matrix is mapped from a file.

    All users are there at the beginning and the end; between these, of each block a call and an answer, and their sum.
    """
    users, items = shape
    sizes: Sizes = settings.sizes_by_blocks(items, 0)
    exchange = settings.blocks * (sizes.items + sizes.answer)
    return max(COPIES * users * sizes.user, exchange + sizes.here) + sizes.items + 4 * model.item_matrices * items**2


def block_bytes(settings: ModelSettings, users: int, items: int, edges: int) -> int:
    """About how many bytes a call of a block takes.

    Args:
        users, edges: of the block.
    """
    sizes: Sizes = settings.sizes_by_blocks(items, edges)
    return sizes.edge * edges + COPIES * sizes.user * users + 2 * (sizes.items + sizes.answer) + sizes.call


def users_at_once(model: "type[Model]", items: int, edges: int) -> int:
    """Users of a block of scores by a fit on so many items and edges (`models.base.Model.users_at_once`)."""
    block = LARGE_BLOCK if reads_large_table(model, items, edges) else model.block_bytes
    return max(1, block // (4 * items))


def reads_large_table(model: "type[Model]", items: int, edges: int) -> bool:
    """Whether each block of scores reads a table of all items, so that blocks are large and quicker one after another."""
    return model.matrices_on(items, edges) > 0


def judging_bytes(model: "type[Model]", items: int, edges: int, users: int, saved: int) -> int:
    """About how many bytes it takes to rank all items for some users by a fit, beside what the process has anyway.

    Args:
        items, edges: of the log that it was fitted on.
        saved: size of the saved fit, of which some is kept in another form too.
    """
    blocks = len(model.score_names) + BESIDE_SCORES
    return blocks * 4 * items * min(users, users_at_once(model, items, edges)) + 2 * saved
