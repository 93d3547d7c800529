"""About how much memory a fit takes, or ranking by it, for whoever has to find room for it."""

from models.base import Model
from models.settings import ModelSettings

BYTES_OF_EDGE = 16  # an index and a value, by user and by item
BYTES_OF_FACTOR = 12  # a mean, a precision and what an update needs beside them
COPIES_OF_SCORES = 4  # of a block: what several scores are made from, and those that are ranked


def fit_bytes(model: type[Model], settings: ModelSettings, shape: tuple[int, int], edges: int) -> int:
    """Bytes that a fit takes about, beside what the process has anyway.

    Args:
        shape, edges: of the (users, items) training matrix.
    """
    users, items = shape
    factors = getattr(settings, "factors", 0) * (users + items)
    return BYTES_OF_EDGE * edges + BYTES_OF_FACTOR * factors + 4 * model.item_matrices * items**2


def scores_bytes(model: type[Model], items: int) -> int:
    """Bytes of a block of scores, of `users_at_once` users (`models.base`)."""
    return max(1, model.block_bytes // (4 * items)) * 4 * items


def judging_bytes(model: type[Model], items: int, saved: int) -> int:
    """Bytes that it takes about to rank for users by a fit, beside what the process has anyway.

    Args:
        saved: size of the saved fit, of which some is kept in another form too.
    """
    return COPIES_OF_SCORES * scores_bytes(model, items) + 2 * saved
