"""A simulated shop that lives for some nights with lists that explore or not: clicks, regret, and likes of new items.

A user who looks at an item likes it with the probability sigma(u'v + b) of the random-graph paper's story. Some likes
are there at the start; every night new items come, half of the users look at a list each and at one item drawn by
popularity, and `random_graph` is fitted to all likes. A liked item is not listed again. All policies see the same
users, coins and new items. The regret of a night is the number of likes that the best lists by the hidden probabilities
would get, minus that of the policy's, both expected, per list.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.recommend.exploration import Exploration, find_candidates, pick_items
from oneclass.tasks.rules.selection import Selection

USERS, FIRST_ITEMS, NEW_ITEMS, N = 400, 300, 3, 10
CONSIDERED = 25  # items that a user looked at before the first night
NIGHTS = 60
SCORE = "popularity_x_odds"
NONE = np.empty(0, dtype=np.int32)


class Shop(NamedTuple):
    """The hidden truth: probabilities (users, items) of all items that will come, and how popular each is."""

    probability: np.ndarray
    popularity: np.ndarray

    @classmethod
    def of_truth(cls, truth: GroundTruth, nights: int, seed: int) -> Self:
        """Draw users and items of a known truth."""
        random, counts = np.random.default_rng(seed), (USERS, FIRST_ITEMS + NEW_ITEMS * nights)
        users, items = (
            random.permutation(len(side))[:count]
            for side, count in zip((truth.users, truth.items), counts, strict=True)
        )
        return cls(truth.coins(users)[:, items], truth.item_odds[items])


class Night(NamedTuple):
    """What a policy knows in a night: the visitors' rows, their likes, and scores, `like` and candidates for them."""

    number: int
    visitors: np.ndarray
    histories: csr_matrix
    scores: np.ndarray
    like: tuple[np.ndarray, np.ndarray]
    candidates: np.ndarray


Policy = Callable[[Night], np.ndarray]  # returns the visitors' lists, (visitors, N)


class Life(NamedTuple):
    """What happened, by night: expected clicks and regret per list, and likes of items that were new."""

    clicks: np.ndarray
    regret: np.ndarray
    new_likes: np.ndarray


def list_best(night: Night) -> np.ndarray:
    """List the best by the score of the published lists."""
    return night.candidates[:, :N]


def explore(exploration: Exploration) -> Policy:
    """Return the policy that lists as `publish.explore` does."""

    def list_exploring(night: Night) -> np.ndarray:
        like = tuple(np.take_along_axis(part, night.candidates, axis=1) for part in night.like)
        tonight = exploration._replace(night=night.number)
        picks, _ = pick_items(tonight, night.candidates, (like[0], like[1]), night.visitors, N, NONE)
        return np.take_along_axis(night.candidates, picks, axis=1)

    return list_exploring


def live(shop: Shop, policy: Policy, nights: int, seed: int, threads: int = 1) -> Life:
    """Let the shop live under a policy."""
    liked, (users, _) = np.zeros(shop.probability.shape, dtype=bool), shop.probability.shape
    first = min(FIRST_ITEMS, len(shop.popularity))
    random = np.random.default_rng([seed, 1])
    for user in range(users):
        seen = draw_by_popularity(random, shop.popularity[:first], CONSIDERED)
        liked[user, seen] = random.random(CONSIDERED) < shop.probability[user, seen]
    found = Life(*(np.zeros(nights) for _ in Life._fields))
    for number in range(nights):
        items = min(first + NEW_ITEMS * (number + 1), len(shop.popularity))
        random = np.random.default_rng([seed, 2, number])  # the same for every policy
        visitors, coins = np.flatnonzero(random.random(users) < 0.5), random.random(liked.shape)
        looked = np.array([draw_by_popularity(random, shop.popularity[:items], 1)[0] for _ in visitors])
        likes = csr_matrix(liked[:, :items], dtype=np.float32)
        listed = policy(_open_night(likes, number, visitors, seed, threads))
        rows, chances = visitors[:, None], np.where(liked, 0, shop.probability)[visitors, :items]
        got = np.take_along_axis(chances, listed, axis=1).sum(axis=1)
        best = -np.partition(-chances, N, axis=1)[:, :N]
        found.clicks[number], found.regret[number] = got.mean(), (best.sum(axis=1) - got).mean()
        before = liked[:, first:].sum()
        liked[rows, listed] |= coins[rows, listed] < shop.probability[rows, listed]
        liked[visitors, looked] |= coins[visitors, looked] < shop.probability[visitors, looked]
        found.new_likes[number] = liked[:, first:].sum() - before
    return found


def simulate_nights(truth: GroundTruth, exploration: Exploration, threads: int) -> pl.DataFrame:
    """Let a shop of known truth live with lists that explore as tonight's do, and with the best ones.

    Returns:
        `diagnostics.simulated_nights`.
    """
    shop, seed = Shop.of_truth(truth, NIGHTS, exploration.seed), exploration.seed
    policies = {"greedy": list_best, exploration.policy: explore(exploration)}
    nights = np.arange(1, NIGHTS + 1, dtype=np.int32)
    lives = (
        pl.DataFrame({"night": nights, **live(shop, policy, NIGHTS, seed, threads)._asdict()}).with_columns(
            pl.lit(name).alias("policy"), pl.col("new_likes").cast(pl.Int64)
        )
        for name, policy in policies.items()
    )
    return pl.concat(lives)


def draw_by_popularity(random: np.random.Generator, popularity: np.ndarray, count: int) -> np.ndarray:
    """Draw different items by popularity."""
    return random.choice(len(popularity), count, replace=False, p=popularity / popularity.sum())


def _open_night(likes: csr_matrix, number: int, visitors: np.ndarray, seed: int, threads: int) -> Night:
    """Fit the model to all likes, and find the candidates of the visitors."""
    model = RandomGraph(iterations=12, factors=8, bound_every=0, seed=seed, threads=threads).fit(likes)
    histories, rows = likes[visitors], visitors.astype(np.int32)
    scores = model.scores(histories, users=rows, score=SCORE)
    like = model.like(histories, users=rows)
    assert like is not None
    selection = Selection.of_all(histories, N, exclude_seen=True)
    return Night(number, rows, histories, scores, like, find_candidates(scores, like, histories, selection))
