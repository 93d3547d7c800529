"""A shop with attributes, returns and rules, published for tests that only read, and as the oracle reads it."""

import copy
import random
import shutil
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.rules.settings import DeclaredRules, Placement, Rules
from oneclass.tasks.stores import warehouse
from tests.conftest import home_in, load_ids, log_into
from tests.tasks.conftest import publish_fit, split_likes, train_model
from tests.tasks.rules import oracle
from tests.tasks.rules.oracle import RuleCase, Shop

MODEL, TOP_N, USERS, ITEMS = "mrf_dense", 6, 40, 30
FIRST, RETURN = datetime(2026, 1, 1), "return"
RULES = Rules(
    eligible="stock > 0 and (not adult or user.age >= 18)",
    banned=["i1"],
    pinned=["i7", "i3"],
    boosts=[{"when": "genre = 'jazz'", "by": 0.5}],
    max_per_category={"tags": 3},
    not_event=[RETURN],
    request_filters=["genre", "history.users"],
)
HOME_PAGE = Placement(n=3, eligible="price < 5", max_per_category={"genre": 1}, boosts=[{"when": "adult", "by": -2}])
DECLARED = DeclaredRules(rules=RULES, placements={"home": HOME_PAGE, "mail": Placement()})


def is_eligible(item, user):
    is_adult_user = user["age"] is not None and user["age"] >= 18
    return item["stock"] is not None and item["stock"] > 0 and (item["adult"] is False or is_adult_user)


JAZZ = (lambda item, user: item["genre"] == "jazz", 0.5)
EVERYWHERE = RuleCase(RULES, None, TOP_N, [is_eligible], [JAZZ], {"tags": 3})
AT_HOME = RuleCase(
    RULES,
    HOME_PAGE,
    3,
    [is_eligible, lambda item, user: item["price"] is not None and item["price"] < 5],
    [JAZZ, (lambda item, user: item["adult"] is True, -2.0)],
    {"tags": 3, "genre": 1},
)
CASES = {None: EVERYWHERE, "home": AT_HOME, "mail": EVERYWHERE}


def draw_shop():
    return oracle.draw_shop(random.Random(7), ITEMS, USERS)


class RuledShop:
    """A home with attributes, and its shop in the order of the publication, as the oracle reads it."""

    def __init__(self, home):
        self.home = home
        drawn = draw_shop()
        for item in drawn.items:
            item["tags"] = item["tags"] or None  # an empty cell is null
        self.bought = {
            (user, item) for user, history in enumerate(drawn.histories) for item in {*history, user % ITEMS}
        }
        returned = {(user, item) for user, items in enumerate(drawn.excluded) for item in items}
        orders = [
            (f"u{user}", f"i{item}", 1, FIRST + timedelta(days=(user + item) % 20), "order")
            for user, item in self.bought
        ]
        log_into(home, orders + [(f"u{user}", f"i{item}", -1, FIRST, RETURN) for user, item in returned])
        self.store(drawn)
        self.digest = split_likes(home, "leave_one_out", held_out_share=0.2)[ALL_EDGES]
        self.fit = train_model(home, self.digest, MODEL, MODELS[MODEL].Settings(l2=2.0)).digest
        users, items = ({one: at for at, one in load_ids(home, side).items()} for side in ("user", "item"))
        self.user_ids, self.item_ids = (sorted(index, key=index.get) for index in (users, items))
        seen = [set() for _ in users]
        kept_out = [set() for _ in users]
        for pairs, rows in ((self.bought, seen), (returned, kept_out)):
            for user, item in pairs:
                if f"i{item}" in items:
                    rows[users[f"u{user}"]].add(items[f"i{item}"])
        self.shop = Shop(
            [drawn.items[int(item_id[1:])] for item_id in self.item_ids],
            [drawn.users[int(user_id[1:])] for user_id in self.user_ids],
            seen,
            kept_out,
            np.empty(0),
        )
        for user, history in zip(self.shop.users, seen, strict=True):
            user["history.items"] = len(history)
        for number, item in enumerate(self.shop.items):
            item["history.users"] = sum(number in history for history in seen)

    def store(self, drawn):
        for side in ("item", "user"):
            drawn.build_table(side).write_parquet(self.home.root / f"{side}s.parquet")
        dataset = Dataset(
            name="small",
            items={"file": str(self.home.root / "items.parquet"), "categories": ["tags"]},
            users={"file": str(self.home.root / "users.parquet")},
        )
        with warehouse.open_warehouse(self.home) as connection:
            store_attributes(connection, "run", dataset)

    def copy_to(self, home):
        """Return this shop, which has published nothing, in another home."""
        other = copy.copy(self)
        other.home, other.shop = home, replace(self.shop)
        shutil.copytree(self.home.root, home.root)
        return other

    def publish(self, run_id, declared=DECLARED, **changes):
        settings = PublishSettings(top_n=TOP_N)
        fit = MODEL, "score", self.fit, self.digest
        publish_fit(self.home, run_id, settings, *fit, declared=declared, **changes)
        recommender = load(self.home.root, "small")
        self.shop.scores = np.stack([recommender.scores_for(user_id) for user_id in self.user_ids])
        return recommender

    def expect(self, case, user_id, shop=None, *, exclude_seen=True):
        """Return the ids that a plain reading of the rules lists for a user."""
        user, shop = self.user_ids.index(user_id), shop or self.shop
        allowed = oracle.list_allowed_items(shop, case, user, exclude_seen=exclude_seen)
        return [self.item_ids[item] for item in oracle.select_naively(shop, case, user, allowed)]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> RuledShop:
    """A shop that has published nothing; tests publish in copies of it."""
    return RuledShop(home_in(tmp_path_factory.mktemp("built")))


@pytest.fixture
def shop(built, home):
    return built.copy_to(home)


@pytest.fixture(scope="module")
def ruled(built, tmp_path_factory):
    """(shop, recommender) of a publication that obeys the rules; for tests that only read it."""
    shop = built.copy_to(home_in(tmp_path_factory.mktemp("ruled")))
    return shop, shop.publish("first")
