"""The columns that a data set's file names: those of the logs, and of the tables of attributes of items and users."""

from collections import Counter
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

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

FeatureKind = Literal["category", "categories", "number", "text"]


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


class AttributeTable(BaseModel):
    """A table with one row per item or user. The columns named here are features of the models; rules read all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(min_length=1)
    """In the folder of the data set's file unless the path is absolute."""
    id: str = ""
    """The column of ids; by default one of the usual names."""
    title: str = ""
    """The column of titles, of items; instead of `[titles]`."""
    category: tuple[str, ...] = ()
    """Columns with one name in a cell, such as a department."""
    categories: tuple[str, ...] = ()
    """Columns with several names in a cell, such as genres."""
    separator: str = Field("|", min_length=1)
    """Of the names in a cell of `categories`."""
    number: tuple[str, ...] = ()
    """Columns of numbers, such as a price."""
    text: tuple[str, ...] = ()
    """Columns of words, such as a description."""
    max_missing_share: float = Field(0.5, ge=0, le=1)
    """A column named here with a larger share of empty cells is warned of."""

    @field_validator("category", "categories", "number", "text", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: object) -> object:
        return (names,) if isinstance(names, str) else names

    @model_validator(mode="after")
    def _name_each_column_once(self) -> Self:
        named = Counter(name.lower() for name in (*self.kinds, *([self.id] if self.id else [])))
        count = sum(len(names) for names in (self.category, self.categories, self.number, self.text))
        if count > len(self.kinds) or any(times > 1 for times in named.values()):
            raise ValueError("a column is named twice; it has one kind")
        return self

    @property
    def kinds(self) -> dict[str, FeatureKind]:
        """The kind of each column that is a feature."""
        kinds: tuple[FeatureKind, ...] = ("category", "categories", "number", "text")
        return {name: kind for kind in kinds for name in getattr(self, kind)}
