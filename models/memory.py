"""About how much memory a fit takes, or ranking by it, for whoever has to find room for it."""

from models.base import Model
from models.settings import ModelSettings

BYTES_OF_EDGE = 16  # an index and a value, by user and by item
BYTES_OF_FACTOR = 12  # a mean, a precision and what an update needs beside them
BESIDE_SCORES = 2  # blocks as large: what the scores are made from


def fit_bytes(model: type[Model], settings: ModelSettings, shape: tuple[int, int], edges: int) -> int:
    """Bytes that a fit takes about, beside what the process has anyway.

    Args:
        shape, edges: of the (users, items) training matrix.
    """
    users, items = shape
    factors = getattr(settings, "factors", 0) * (users + items)
    return BYTES_OF_EDGE * edges + BYTES_OF_FACTOR * factors + 4 * model.item_matrices * items**2


def users_at_once(model: type[Model], items: int) -> int:
    """Users of a block of scores by a fit on so many items (`models.base.Model.users_at_once`)."""
    return max(1, model.block_bytes // (4 * items))


def judging_bytes(model: type[Model], items: int, users: int, saved: int) -> int:
    """Bytes that it takes about to rank all items for some users by a fit, beside what the process has anyway.

    Args:
        saved: size of the saved fit, of which some is kept in another form too.
    """
    blocks = len(model.score_names) + BESIDE_SCORES
    return blocks * 4 * items * min(users, users_at_once(model, items)) + 2 * saved
