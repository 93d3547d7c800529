"""A shop by brute force: its events, its rules and its publications, with the lists of all users by the letter."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Lists = dict[tuple[str, str], list[str]]  # by placement, "" for none, and user
GENRES = ("tea", "cups", "pots")


@dataclass
class ShopModel:
    """A shop whose lists are by popularity.

    Attributes:
        events: (user, item, kind) of every line that was read, the orders and the returns.
        products: genre, price and stock of the items that the table of products has.
        seen: whether lists have items that the user has.
        publications: of each run that published, the run whose publication stood before, and the lists.
    """

    generator: random.Random
    seen: bool
    top_n: int
    events: list[tuple[str, str, str]] = field(default_factory=list)
    products: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    rules: dict[str, object] = field(default_factory=dict)
    home_n: int = 0
    users: int = 0
    publications: dict[str, tuple[str | None, Lists]] = field(default_factory=dict)
    current: str | None = None

    @classmethod
    def draw(cls, generator: random.Random) -> "ShopModel":
        """Draw a shop's products and settings."""
        shop = cls(generator, seen=generator.random() < 0.4, top_n=generator.choice([1, 4, 30]))
        if generator.random() < 0.8:
            shop.products = {
                f"i{item:02}": (generator.choice(GENRES), float(generator.randint(1, 9)), generator.randint(0, 3))
                for item in range(25)
                if generator.random() < 0.9
            }
        shop.home_n = generator.choice([0, 3])
        return shop

    def draw_events(self) -> list[tuple[str, str, str]]:
        """Draw a night's events, those of new customers among them."""
        self.users += self.generator.randint(1, 8)
        kinds = self.generator.choices(["order", "return"], [9, 1], k=self.generator.randint(8, 60))
        draw_user, draw_item = self.generator.randrange, self.generator.triangular
        return [(f"user-{draw_user(self.users):03}x", f"i{int(draw_item(0, 24, 0)):02}", kind) for kind in kinds]

    def draw_rules(self) -> None:
        """Draw the rules of the nights from now on."""
        draw = self.generator.random
        items = [f"i{self.generator.randrange(25):02}" for _ in range(4)]
        self.rules = {}
        if draw() < 0.5:
            self.rules |= {"pinned": items[:1], "banned": items[1:2]}
        if draw() < 0.5:
            self.rules["not_event"] = ["return"]
        if self.products and draw() < 0.6:
            self.rules["stock"] = self.generator.choice([0, 0, 1, 5])  # more than so many; nothing has more than 3
        if self.products and draw() < 0.4:
            self.rules["limit"] = self.generator.randint(1, 3)
        if self.products and draw() < 0.4:
            self.rules["boost"] = self.generator.choice([-0.5, 0.25, 2.0])

    def write_declaration(self, folder: Path) -> None:
        """Write the data set's file and the table of products."""
        lines = ['files = ["*.csv"]', "[events]", "order = 1", "return = 0"]
        if self.products:
            rows = [f"{item},{genre},{price},{stock}" for item, (genre, price, stock) in self.products.items()]
            (folder / "products.csv").write_text("\n".join(["id,genre,price,stock", *rows, ""]))
            lines += ["[items]", 'file = "products.csv"', 'id = "id"', 'category = ["genre"]', 'number = ["price"]']
        lines.append("[rules]")
        lines += [f"{name} = {self.rules[name]}" for name in ("pinned", "banned", "not_event") if name in self.rules]
        if "stock" in self.rules:
            lines.append(f'eligible = "stock > {self.rules["stock"]}"')
        if "limit" in self.rules:
            lines.append(f"max_per_category = {{genre = {self.rules['limit']}}}")
        if "boost" in self.rules:
            lines.append(f'boosts = [{{when = "price > 5", by = {self.rules["boost"]}}}]')
        lines += ["[placements.home]", f"n = {self.home_n}"] if self.home_n else []
        (folder / "shop.toml").write_text("\n".join(lines).replace("'", '"') + "\n")

    @property
    def edges(self) -> set[tuple[str, str]]:
        """The likes: pairs with an order."""
        return {(user, item) for user, item, kind in self.events if kind == "order"}

    def list_items(self) -> list[str]:
        """The items that somebody likes, in the order of their first likes, which breaks ties."""
        return list(dict.fromkeys(item for _, item, kind in self.events if kind == "order"))

    def find_allowed(self, user: str) -> list[str]:
        """The items that a user may get, but for limits."""
        returned = {item for one, item, kind in self.events if one == user and kind == "return"}
        had = {item for one, item in self.edges if one == user}
        return [
            item
            for item in self.list_items()
            if self._is_eligible(item)
            and not (item in returned and "not_event" in self.rules)
            and (self.seen or item not in had)
        ]

    def leaves_nothing(self) -> bool:
        """Whether items are liked, and the rules allow none of them to anybody."""
        return bool(self.list_items()) and not any(map(self._is_eligible, self.list_items()))

    def _is_eligible(self, item: str) -> bool:
        if item in self.rules.get("banned", ()):
            return False
        return "stock" not in self.rules or (item in self.products and self.products[item][2] > self.rules["stock"])

    def compute_lists(self) -> Lists:
        """Compute the lists of every user, of each placement and of none."""
        degrees = Counter(item for _, item in self.edges)
        lists = {}
        for user in sorted({user for user, _ in self.edges}):
            allowed = self.find_allowed(user)
            for placement, n in (("", self.top_n), *([("home", self.home_n)] if self.home_n else [])):
                if chosen := self._select(allowed, degrees, n):
                    lists[placement, user] = chosen
        return lists

    def _select(self, allowed: list[str], degrees: Counter[str], n: int) -> list[str]:
        ranked = sorted((degrees[item] for item in allowed), reverse=True)[:n]
        spread = np.float32(ranked[0] - ranked[-1]) if ranked else np.float32(0)
        scores = {item: np.float32(degrees[item]) for item in allowed}
        for item in allowed:
            if "boost" in self.rules and item in self.products and self.products[item][1] > 5:
                scores[item] += np.float32(self.rules["boost"]) * spread
        pinned = [item for item in self.rules.get("pinned", ()) if item in scores]
        chosen: list[str] = []
        genres: Counter[str] = Counter()
        for item in [*pinned, *sorted(allowed, key=lambda item: -scores[item])]:
            genre = self.products[item][0] if item in self.products and "limit" in self.rules else None
            if len(chosen) < n and item not in chosen and (genre is None or genres[genre] < self.rules["limit"]):
                chosen.append(item)
                genres.update([genre] if genre else [])
        return chosen

    def publish(self, run_id: str) -> None:
        """Note that a run published what the events and rules give."""
        self.publications[run_id] = (self.current, self.compute_lists())
        self.current = run_id

    def roll_back(self) -> bool:
        """Go back to the publication before; False if there is none."""
        before = self.publications[self.current][0] if self.current else None
        if before not in self.publications:
            return False
        self.current = before
        return True

    def forget(self, user: str) -> None:
        """Remove a user, and every publication: the next one is the first."""
        self.events = [event for event in self.events if event[0] != user]
        self.publications, self.current = {}, None

    @property
    def lists(self) -> Lists:
        """What is published now."""
        return self.publications[self.current][1] if self.current else {}


def group_rows(rows: Iterable[tuple[str, str, int, str]]) -> Lists:
    """Group rows of placement, user, rank and item to lists; their ranks must count from 1."""
    lists: Lists = {}
    for placement, user, rank, item in sorted(rows):
        lists.setdefault((placement, user), []).append(item)
        assert len(lists[placement, user]) == rank
    return lists
