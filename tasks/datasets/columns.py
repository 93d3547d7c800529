"""The columns that a data set's file names: those of the logs, and of the tables of attributes of items and users."""

from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

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
              "interaction"),
}  # fmt: skip
"""Whole names, in lower case with blanks and hyphens as underscores, that leave no doubt of a column's role."""

FeatureKind = Literal["category", "categories", "number", "text"]
FEATURE_KINDS = get_args(FeatureKind)


class Columns(BaseModel):
    """The columns of a log by their names in its header or schema; of one without a header by number, from 1.

    A role that is left out has the column with a name of `KNOWN_NAMES`. Of several names the first that a file has
    counts. An empty list says that the log has no such column that is to be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: tuple[str, ...] | None = Field(default=None, min_length=1)
    item: tuple[str, ...] | None = Field(default=None, min_length=1)
    value: tuple[str, ...] | None = None
    """Where a log has none, every event counts 1."""
    time: tuple[str, ...] | None = Field(default=None, max_length=2)
    """Two names are those of the date and of the time of day."""
    event: tuple[str, ...] | None = None
    """The kind of event, with `[events]`."""

    @field_validator("*", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: object) -> object:
        names = [names] if isinstance(names, str | int) else names
        return [str(name) for name in names if name != "-"] if isinstance(names, list | tuple) else names

    def accepted(self, role: str) -> tuple[str, ...]:
        """Return the names that a column of a role may have."""
        stated: tuple[str, ...] | None = getattr(self, role)
        return KNOWN_NAMES[role] if stated is None else stated


class AttributeTable(BaseModel):
    """A table with one row per item or user. The columns named here are features of the models; rules read all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @field_validator(*FEATURE_KINDS, mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: object) -> object:
        return (names,) if isinstance(names, str) else names

    @model_validator(mode="after")
    def _name_each_column_once(self) -> Self:
        named = [name.lower() for kind in FEATURE_KINDS for name in getattr(self, kind)]
        named += [self.id.lower()] if self.id else []
        if len(named) > len(set(named)):
            raise ValueError("a column is named twice; it has one kind")
        return self

    @property
    def kinds(self) -> dict[str, FeatureKind]:
        """The kind of each column that is a feature."""
        return {name: kind for kind in FEATURE_KINDS for name in getattr(self, kind)}
