"""Requests and answers of the HTTP interface."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from oneclass.tasks.recommend.like_calibration import EXPLICIT_LIKE_MEANING, LIKE_MEANING, LIKE_SD_MEANING
from oneclass.tasks.stores.published_model import SeenChoice

MAX_ITEMS = 1000  # of a list
MAX_QUERIES = 100  # of a batch
MAX_BATCH_ITEMS = 10_000  # of all lists of a batch
MAX_IDS = 10_000  # of a history, or of items to choose among or leave out
MAX_CHARACTERS = 10_000  # as many as ids of logs may have; to count them pydantic refuses what is no Unicode

Count = Annotated[int, Field(ge=1, le=MAX_ITEMS)]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Ids = Annotated[list[Text], Field(max_length=MAX_IDS)]


class Request(BaseModel, extra="forbid"):
    """What a client sends; an unknown name is refused, since it may be a known one with a slip."""


class Paging(Request):
    """Which part of a list is answered."""

    limit: Count | None = Field(None, description="items of a page; by default the whole list in one answer")
    page: Text | None = Field(None, description="`next` of the answer before, with the same parameters as there")


class ListOptions(Paging):
    """How lists are made."""

    n: Count | None = Field(None, description="length of the list; by default the placement's, else 20")
    within: Ids | None = Field(None, description="items to choose among; all by default")
    without: Ids | None = Field(None, description="items to leave out")
    seen: SeenChoice | None = Field(None, description="whether to include the history's items; by default as published")
    placement: Text | None = Field(None, description="a placement: its rules, and its number of items")
    where: Text | None = Field(None, description="a SQL condition on the columns that `request_filters` allows")


class Reader(Request):
    """Whom a list is for: a user of the logs, or a history of liked items, the newest last."""

    user: Text | None = Field(None, description="a user of the logs")
    items: Ids | None = Field(None, description="a history instead of a user: liked items, the newest last")

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.user is None) == (self.items is None):
            raise ValueError("give either `user`, or the items of a history")
        return self


class RecommendQuery(ListOptions, Reader):
    """A list for one user or history, whose items are given one by one."""

    items: Ids | None = Field(None, alias="item", description=Reader.model_fields["items"].description)


class RecommendBatch(ListOptions):
    """Lists for many users and histories, by the same options."""

    queries: Annotated[list[Reader], Field(min_length=1, max_length=MAX_QUERIES, description="one per list")]


class ItemListQuery(Paging):
    """A list for everybody."""

    category: Text | None = Field(None, description="of the items' attributes; all items by default")
    window_days: int | None = Field(None, description="7 or 30 days; by default the longer")
    n: Count = Field(20, description="length of the list")


class SimilarQuery(Paging):
    """Items similar to one."""

    item: Text = Field(description="an item of the logs")
    n: Count = Field(20, description="length of the list")


class Item(BaseModel):
    """One recommended item."""

    item_id: str
    title: str | None
    score: float
    like_mean: float | None = Field(None, description=LIKE_MEANING)
    like_sd: float | None = Field(None, description=LIKE_SD_MEANING)
    because: list[str] = Field([], description="up to three likes that speak for the item, the strongest first")
    mark: Literal["pinned", "new"] | None = Field(
        None, description="`pinned` if the rules put the item first, `new` if nobody likes it yet"
    )
    explicit_like_mean: float | None = Field(None, description=EXPLICIT_LIKE_MEANING)
    explicit_like_sd: float | None = Field(None, description="its posterior standard deviation")


class Served(BaseModel):
    """What answered; `next` is the `page` of what follows, null at the end of the list."""

    dataset: str
    publication: str
    next: str | None


class Answer(Served):
    """Items, best first, of a model's score; `unknown` are the request's unknown items."""

    model: str
    score: str
    unknown: list[str]
    items: list[Item]


class ReaderAnswer(BaseModel):
    """The list of one query of a batch; `error` says why there is none."""

    user: str | None
    unknown: list[str]
    error: str | None
    items: list[Item]


class BatchAnswer(Served):
    """One list per query, in their order, all of one publication; `next` is null where no list goes on."""

    model: str
    score: str
    answers: list[ReaderAnswer]


class ListedItem(BaseModel):
    """One item of a list for everybody; `published.lists` says what value, users, expected_users and p_value are."""

    item_id: str
    title: str | None
    value: float
    users: int
    expected_users: float | None
    p_value: float | None


class ListAnswer(Served):
    """A list for everybody, best first."""

    items: list[ListedItem]


class Health(BaseModel):
    """The served publication and its age."""

    status: str = Field(
        description="ok, behind if a newer one cannot be loaded, or stale if older than publish.max_age"
    )
    dataset: str
    publication: str
    published_at: datetime
    age_seconds: float
    model: str
    score: str
    items: int
    users: int
    error: str | None
