"""Sections of a data set's file: the columns of its logs, the tables of items and users, the source of new logs."""

import re
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from oneclass.tasks.secrets import check_reference

ROLES = ("user", "item", "value", "time", "event")
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user_id", "userid", "user", "uid", "customer_id", "customerid", "customer", "client_id", "clientid",
             "visitor_id", "visitorid", "member_id", "memberid", "reviewer_id", "reviewerid", "account_id",
             "accountid", "kunde", "kunden_id", "kundennummer", "kundennr", "nutzer", "benutzer", "utilisateur",
             "id_utilisateur", "id_client", "usuario", "id_usuario", "cliente", "id_cliente"),
    "item": ("item_id", "itemid", "item", "product_id", "productid", "product", "sku", "asin", "movie_id", "movieid",
             "track_id", "trackid", "artist_id", "artistid", "book_id", "bookid", "article_id", "articleid", "song_id",
             "business_id", "artikel", "artikel_id", "artikelnummer", "artikelnr", "produkt", "produkt_id", "produit",
             "id_produit", "producto", "id_producto"),
    "value": ("value", "rating", "stars", "score", "overall", "count", "weight", "quantity", "qty", "plays",
              "play_count", "playcount", "menge", "anzahl", "bewertung", "quantite", "cantidad"),
    "time": ("timestamp", "time", "date", "datetime", "date_time", "occurred_at", "ordered_at", "created_at",
             "event_time", "unixreviewtime", "datum", "bestelldatum", "belegdatum", "zeitstempel", "fecha"),
    "event": ("event", "event_type", "event_name", "action", "action_type", "behavior", "behavior_type",
              "interaction", "interaction_type"),
}  # fmt: skip
"""Whole names, in lower case with blanks and hyphens as underscores, that leave no doubt of a column's role."""

FeatureKind = Literal["category", "categories", "number", "text"]
FEATURE_KINDS = get_args(FeatureKind)


def _list_names(names: object) -> object:
    """Take one name for a list of it, and `-` for none."""
    names = [names] if isinstance(names, str | int) else names
    return [str(name) for name in names if name != "-"] if isinstance(names, list | tuple) else names


class Columns(BaseModel, frozen=True, extra="forbid"):
    """The columns of a log by their names in its header or schema; of one without a header by number, from 1.

    A role that is left out has the column with a name of `KNOWN_NAMES`. Of several names the first that a file has
    counts. An empty list says that the log has no such column that is to be read.
    """

    user: tuple[str, ...] | None = Field(default=None, min_length=1)
    item: tuple[str, ...] | None = Field(default=None, min_length=1)
    value: tuple[str, ...] | None = None
    """Where a log has none, every event counts 1."""
    time: tuple[str, ...] | None = Field(default=None, max_length=2)
    """Two names are those of the date and of the time of day."""
    event: tuple[str, ...] | None = None
    """The kind of event, with `[events]`."""

    _names = field_validator("*", mode="before")(_list_names)

    def accepted(self, role: str) -> tuple[str, ...]:
        """Return the names that a column of a role may have."""
        stated: tuple[str, ...] | None = getattr(self, role)
        return KNOWN_NAMES[role] if stated is None else stated


class Titles(BaseModel, frozen=True, extra="forbid"):
    """The table of items' titles and its columns."""

    file: str = ""
    """In the folder of the data set's file unless the path is absolute; `--titles` names another."""
    item: str = ""
    """The column of item ids; by default one of the usual names."""
    title: str = ""
    """The column of titles; by default one of the usual names."""


class AttributeTable(BaseModel, frozen=True, extra="forbid"):
    """A table with one row per item or user. The columns named here are features of the models; rules read all."""

    file: str = Field(min_length=1)
    """In the folder of the data set's file unless the path is absolute."""
    id: str = ""
    """The column of ids; by default one of the usual names."""
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

    _names = field_validator(*FEATURE_KINDS, mode="before")(_list_names)

    @model_validator(mode="after")
    def _name_each_column_once(self) -> Self:
        named = [name.lower() for kind in FEATURE_KINDS for name in getattr(self, kind)] + [self.id.lower()]
        if len(named) > len(set(named)):
            raise ValueError("a column is named twice; it has one kind")
        return self

    @property
    def kinds(self) -> dict[str, FeatureKind]:
        """The kind of each column that is a feature."""
        return {name: kind for kind in FEATURE_KINDS for name in getattr(self, kind)}


LANDED_FILES = ("source.parquet", "source-*.parquet")
"""The names of the files that a query lands: its whole result, or the rows that are new in a run."""
LANDED = re.compile(r"source(?:-(\d{6,}))?\.parquet")
"""The same, with the number of new rows' file."""


class Source(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True):
    """A SQL query, which DuckDB runs, or the database of `url`."""

    query: str = Field(min_length=1)
    """A `select` with a row for each event, whose columns are found by name, as in a log. `{since}` stands for the
    newest time that was read."""
    url: Annotated[str, AfterValidator(check_reference)] = ""
    """Where the database's URL is, which may hold a password: `env:NAME`, an environment variable; `file:PATH`; or
    `block:NAME`, a Secret block on the Prefect server."""
    file: str = ""
    """The data set's file, where relative paths in the query begin. Reading that file sets it."""

    @property
    def is_incremental(self) -> bool:
        """Whether the query asks for new rows only."""
        return "{since}" in self.query
