"""The columns of a data set's logs, and of logs in two kinds of files."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

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


class OrderColumns(Columns):
    """The columns of an orders file; a value is read only if it is named."""

    item: tuple[str, ...] = Field(default=(), max_length=0)
    value: tuple[str, ...] = ()


class LineColumns(Columns):
    """The columns of a file of lines; a time is read only if it is named, and the value is the order's if that is."""

    user: tuple[str, ...] = Field(default=(), max_length=0)
    time: tuple[str, ...] = ()


class OrderFiles(BaseModel):
    """Files with a line for each order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = Field(min_length=1)
    columns: OrderColumns = OrderColumns()


class LineFiles(BaseModel):
    """Files with a line for each item of an order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = Field(min_length=1)
    columns: LineColumns = LineColumns()


class Join(BaseModel):
    """Orders and their lines, in files of their own, with the accepted names of the column that both have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: tuple[str, ...] = Field(min_length=1)
    orders: OrderFiles
    lines: LineFiles

    @field_validator("key", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: object) -> object:
        return (names,) if isinstance(names, str) else names
