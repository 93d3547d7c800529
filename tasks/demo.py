"""Simulate the demo: a log in the Netflix Prize format by the paper's generative model.

Degrees come from power laws with exponential cut-off, half-edges are paired into the hidden graph H, and a Bernoulli
draw per considered edge decides whether it is liked (Paquet and Koenigstein 2014, sections 2 and 3). A like becomes 4
or 5 stars, a considered item that is not liked 1 to 3: lines `USER,STARS,YYYY-MM-DD` below a line `ITEM:` of each item,
in `combined_data_1.txt`, and `_2` and so on for a large log; ids are indices plus one. What a real log hides is what
`simulate_likes` returns.
"""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import BaseModel, Field

from oneclass.models.degrees.distributions import Distribution, power_law_with_mean
from oneclass.models.generator.hidden_graph import NotGraphical, draw_graph
from oneclass.models.generator.likes import LikeFactors, draw_like_factors, draw_likes, draw_ratings, like_probabilities
from oneclass.models.numerics.adjacency import partition_by_budget
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home

FIRST_DAY, NUM_DAYS = np.datetime64("2001-01-01"), 5 * 365
LIKE_SHARE = 0.35  # likes among the considered edges, on average
TRAITS = 4  # K, of a user and of an item
LOGIT_SD = 3.0  # standard deviation of u'v, the taste in a coin's logit
BIAS_SD = 0.5  # standard deviation of the items' biases in the logit
# Powers of the degrees in H, lowered where the graph is too dense for them.
USER_EXPONENT, ITEM_EXPONENT = 0.5, 0.77
MAX_DENSITY = 0.8  # largest share of considered pairs
EXPONENT_STEPS = 80
EDGES_PER_BLOCK, BLOCKS_PER_FILE = 1 << 20, 24


class DemoSettings(BaseModel, frozen=True, extra="forbid"):
    """The size of the demo's log."""

    users: int = Field(2_500, ge=2, le=9_999_999, description="Users M; each considers at least one item.")
    items: int = Field(1_500, ge=2, le=999_999, description="Items N; each is considered by at least one user.")
    likes: int = Field(100_000, ge=1, description="Edges of the observed graph G, met in expectation.")


@dataclass(frozen=True)
class Simulation:
    """A simulated data set; edges are sorted by item, then user.

    Attributes:
        degree_distributions: of the degrees in H, of users and of items.
        traits: the latent factors and biases of the logits.
        starts: int64 (N + 1,), the first edge of each item.
        users: int32 (edges,), the user of each edge of H.
        liked: bool (edges,), whether the user likes the item.
    """

    degree_distributions: tuple[Distribution, Distribution]
    traits: LikeFactors
    starts: np.ndarray
    users: np.ndarray
    liked: np.ndarray


def make_demo(home: Home, settings: DemoSettings, seed: int) -> list[Path]:
    """Write the log to `home.landing`; equal settings and seed give equal bytes.

    Files are completed in a temporary folder and then moved.

    Returns:
        The log files, in order.

    Raises:
        InputError: sizes that no graph has.
    """
    simulation = simulate_likes(settings, seed)
    durable.make_folder(home.landing)
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=home.folder) as temporary:
        logs = _write_log(Path(temporary), simulation, seed)
        for earlier in home.landing.glob("combined_data_*.txt"):
            earlier.unlink()
        for name in logs:
            durable.install_file(Path(temporary, name), home.landing / name)
    return [home.landing / name for name in logs]


def simulate_likes(settings: DemoSettings, seed: int) -> Simulation:
    """Simulate H, the traits and the likes; cut-offs of the degree distributions are such that eq. 1 holds.

    A dense graph cannot have degrees as uneven as a small exponent gives: a user with one edge cannot avoid the items
    that every user considers. If the drawn degrees do not fit together, both exponents are lowered in steps, which
    evens them out.

    Raises:
        InputError: too few or too many likes for the users and items.
    """
    counts = users, items = settings.users, settings.items
    considered = settings.likes / LIKE_SHARE
    fewest, most = LIKE_SHARE * max(counts), LIKE_SHARE * MAX_DENSITY * users * items
    for step in range(EXPONENT_STEPS if fewest < settings.likes <= most else 0):
        of_users = power_law_with_mean(considered / users, USER_EXPONENT - 0.25 * step, items)
        of_items = power_law_with_mean(considered / items, ITEM_EXPONENT - 0.25 * step, users)
        with contextlib.suppress(NotGraphical):
            starts, edges = draw_graph(of_users, of_items, counts, seed)
            if settings.likes < len(edges):
                traits = draw_like_factors(counts, TRAITS, LOGIT_SD, BIAS_SD, seed)
                traits, probability = like_probabilities(traits, starts, edges, settings.likes)
                liked = draw_likes(starts, edges, probability, seed)
                return Simulation((of_users, of_items), traits, starts, edges, liked)
    raise InputError(
        f"demo.likes = {settings.likes:,}: no graph was found; demo.users = {users:,} and demo.items = {items:,} have "
        f"more than {fewest:,.0f} likes and at most {most:,.0f}. Change one of the three, or take another --seed."
    )


def _write_log(folder: Path, simulation: Simulation, seed: int) -> list[str]:
    """Write the ratings of all edges, in blocks of whole items, and return the names of the files."""
    starts, names = simulation.starts, dict[str, None]()
    counts, indices = np.diff(starts), np.arange(len(starts) - 1, dtype=np.int32)
    for number, block in enumerate(partition_by_budget(counts, EDGES_PER_BLOCK)):
        name = f"combined_data_{number // BLOCKS_PER_FILE + 1}.txt"
        part = slice(starts[block.start], starts[block.stop])
        users, items = simulation.users[part], np.repeat(indices[block], counts[block])
        stars, days = draw_ratings(users, items, simulation.liked[part], seed, NUM_DAYS)
        ratings = {"item": items + 1, "user": users + 1, "stars": stars, "date": FIRST_DAY + days}
        lines = pl.format("{},{},{}", "user", "stars", "date").str.join("\n")
        by_item = pl.DataFrame(ratings).group_by("item", maintain_order=True).agg(lines=lines)
        with open(folder / name, "ab") as file:
            file.write(by_item.select(pl.format("{}:\n{}\n", "item", "lines").str.join()).item().encode())
        names[name] = None
    return list(names)
