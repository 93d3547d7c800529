"""The columns of a data set's logs."""

from pydantic import BaseModel, ConfigDict, field_validator

EVENT_COLUMNS = (
    "event",
    "event_type",
    "event_name",
    "action",
    "action_type",
    "behavior",
    "behavior_type",
    "interaction",
)
"""Accepted names of the column with the kind of event, where `[events]` is declared and `columns.event` is not."""


class Columns(BaseModel):
    """Accepted names of each column in a log's header or Parquet schema, in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: tuple[str, ...] = ("user_id", "userId", "user", "customer_id", "customerId", "customer")
    item: tuple[str, ...] = (
        "item_id", "itemId", "item", "product_id", "productId", "product", "sku", "movie_id", "movieId", "track_id",
        "artist_id", "book_id", "article_id",
    )  # fmt: skip
    value: tuple[str, ...] = ("value", "rating", "count", "weight", "quantity")
    """Empty if the log has no values: every event then counts 1."""
    time: tuple[str, ...] = ("timestamp", "occurred_at", "ordered_at", "time", "date")
    """Empty if the times are to be left out; a log without such a column has none."""
    clock: tuple[str, ...] = ()
    """Of the time of day, where `time` has the date alone."""
    event: tuple[str, ...] = ()
    """Of the kind of event, with `[events]`; by default one of `EVENT_COLUMNS`."""

    @field_validator("*", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: object) -> object:
        return (names,) if isinstance(names, str) else names
