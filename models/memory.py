"""About how much memory a fit takes, for whoever has to find room for it."""

from models.base import Model
from models.settings import ModelSettings

BYTES_OF_EDGE = 16  # an index and a value, by user and by item
BYTES_OF_FACTOR = 12  # a mean, a precision and what an update needs beside them


def fit_bytes(model: type[Model], settings: ModelSettings, shape: tuple[int, int], edges: int) -> int:
    """Bytes that a fit takes about, beside what the process has anyway.

    Args:
        shape, edges: of the (users, items) training matrix.
    """
    users, items = shape
    factors = getattr(settings, "factors", 0) * (users + items)
    return BYTES_OF_EDGE * edges + BYTES_OF_FACTOR * factors + 4 * model.item_matrices * items**2
