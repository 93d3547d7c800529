"""Simulate the demo: a log in the Netflix Prize format by the paper's generative model, and its truth.

Degrees come from power laws with exponential cut-off, half-edges are paired into the hidden graph H, and a Bernoulli
draw per considered edge decides whether it is liked (Paquet and Koenigstein 2014, sections 2 and 3). A like becomes 4
or 5 stars, a considered item that is not liked 1 to 3: lines `USER,STARS,YYYY-MM-DD` below a line `ITEM:` of each item,
in `combined_data_1.txt`, up to `_4` for a large log. `<home>/demo/truth/` stores what a real log hides:

    settings.json    settings, seed, degree distributions and resulting counts
    edges.parquet    one row per edge of H: user, item (ids as in the log), probability, liked
    users.npy, items.npy, item_bias.npy    u (M, K), v (N, K), b (N,), float32; row i belongs to id i + 1

Upper bounds at the default size and seed 1, with one like of every user with two or more held out: the ranking by
(degree in H) x sigma(u'v + b), which knows the truth, has mean rank .961 and nDCG@100 .372; popularity has .935 and
.246. (Mean rank: the share of items not liked that rank below the held-out one.)
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from oneclass.models.degrees.distributions import Distribution, power_law_with_mean
from oneclass.models.generator.hidden_graph import NotGraphical, draw_graph
from oneclass.models.generator.likes import LikeFactors, draw_like_factors, draw_likes, draw_ratings, like_probabilities
from oneclass.models.numerics.adjacency import partition_rows
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
LINES_PER_FILE, MAX_FILES = 25_000_000, 4
EDGES_PER_BLOCK = 1 << 20


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
        probability: float32 (edges,), of a like.
        liked: bool (edges,), the outcome of the draw.
    """

    degree_distributions: tuple[Distribution, Distribution]
    traits: LikeFactors
    starts: np.ndarray
    users: np.ndarray
    probability: np.ndarray
    liked: np.ndarray


def make_demo(home: Home, settings: DemoSettings, seed: int) -> list[Path]:
    """Write the log to `home.landing` and the truth to `home.truth`; equal settings and seed give equal bytes.

    Files are completed in a temporary folder and then moved.

    Returns:
        The log files, in order.

    Raises:
        InputError: sizes that no graph has.
    """
    simulation = simulate_likes(settings, seed)
    for folder in (home.landing, home.truth):
        durable.make_folder(folder)
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=home.folder) as temporary:
        logs = _write_log(Path(temporary), simulation, seed)
        truth = _write_truth(Path(temporary), simulation, {"seed": seed, "settings": settings.model_dump()})
        for earlier in home.landing.glob("combined_data_[1-9].txt"):
            earlier.unlink()
        for folder, names in ((home.truth, truth), (home.landing, logs)):
            for name in names:
                durable.install_file(Path(temporary, name), folder / name)
    return [home.landing / name for name in logs]


def solve_degree_distributions(settings: DemoSettings, lowered: float = 0.0) -> tuple[Distribution, Distribution]:
    """Solve the cut-offs of the users' and items' degree distributions in H so that eq. 1 holds.

    Args:
        lowered: subtracted from both exponents.
    """
    users, items, considered = settings.users, settings.items, settings.likes / LIKE_SHARE
    return (
        power_law_with_mean(considered / users, USER_EXPONENT - lowered, items),
        power_law_with_mean(considered / items, ITEM_EXPONENT - lowered, users),
    )


def simulate_likes(settings: DemoSettings, seed: int) -> Simulation:
    """Simulate H, the traits and the likes.

    A dense graph cannot have degrees as uneven as a small exponent gives: a user with one edge cannot avoid the items
    that every user considers. If the drawn degrees do not fit together, both exponents are lowered in steps, which
    evens them out.

    Raises:
        InputError: too few or too many likes for the users and items.
    """
    counts = users, items = settings.users, settings.items
    fewest, most = LIKE_SHARE * max(counts), LIKE_SHARE * MAX_DENSITY * users * items
    for step in range(EXPONENT_STEPS if fewest < settings.likes <= most else 0):
        distributions = solve_degree_distributions(settings, lowered=0.25 * step)
        with contextlib.suppress(NotGraphical):
            starts, edges = draw_graph(*distributions, counts, seed)
            if settings.likes < len(edges):
                traits = draw_like_factors(counts, TRAITS, LOGIT_SD, BIAS_SD, seed)
                traits, probability = like_probabilities(traits, starts, edges, settings.likes)
                liked = draw_likes(starts, edges, probability, seed)
                return Simulation(distributions, traits, starts, edges, probability, liked)
    raise InputError(
        f"demo.likes = {settings.likes:,}: no graph was found; demo.users = {users:,} and demo.items = {items:,} have "
        f"more than {fewest:,.0f} likes and at most {most:,.0f}. Change one of the three, or take another --seed."
    )


def _write_truth(folder: Path, simulation: Simulation, inputs: dict[str, object]) -> list[str]:
    """Write what a real log hides, and return the names of the files."""
    columns = {"user": pa.int32(), "item": pa.int32(), "probability": pa.float32(), "liked": pa.bool_()}
    with pq.ParquetWriter(folder / "edges.parquet", pa.schema(columns)) as writer:
        for users, items, part in _iterate_blocks(simulation, 0, len(simulation.starts) - 1):
            arrays = users + 1, items + 1, simulation.probability[part], simulation.liked[part]
            writer.write_table(pa.table([*map(pa.array, arrays)], pa.schema(columns)))
    for name, values in vars(simulation.traits).items():
        np.save(folder / f"{name}.npy", values)
    laws = {
        side: {name: getattr(law, name) for name in ("exponent", "cutoff", "d_min", "d_max", "mean")}
        for side, law in zip(("user", "item"), simulation.degree_distributions, strict=True)
    }
    counts = {"considered": len(simulation.users), "liked": int(simulation.liked.sum())}
    (folder / "settings.json").write_text(json.dumps({**inputs, "laws": laws, **counts}, indent=2) + "\n")
    return ["edges.parquet", *(f"{name}.npy" for name in vars(simulation.traits)), "settings.json"]


def _iterate_blocks(simulation: Simulation, first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray, slice]]:
    """Yield users, items and places of about `EDGES_PER_BLOCK` edges of the items [first, last), of whole items."""
    starts = simulation.starts
    while first < last:
        end = int(np.searchsorted(starts, starts[first] + EDGES_PER_BLOCK, side="right")) - 1
        end = min(max(end, first + 1), last)
        part = slice(starts[first], starts[end])
        items = np.repeat(np.arange(first, end, dtype=np.int32), np.diff(starts[first : end + 1]))
        yield simulation.users[part], items, part
        first = end


def _write_log(folder: Path, simulation: Simulation, seed: int) -> list[str]:
    """Write the ratings of all edges and return the names of the files; ids are indices plus one."""
    bounds = partition_rows(simulation.starts, min(MAX_FILES, -(-len(simulation.users) // LINES_PER_FILE))).tolist()
    names = [f"combined_data_{number}.txt" for number in range(1, len(bounds))]
    for name, (first, last) in zip(names, pairwise(bounds), strict=True):
        with open(folder / name, "wb") as file:
            for users, items, part in _iterate_blocks(simulation, first, last):
                stars, days = draw_ratings(users, items, simulation.liked[part], seed, NUM_DAYS)
                ratings = {"item": items + 1, "user": users + 1, "stars": stars, "date": FIRST_DAY + days}
                lines = pl.format("{},{},{}", "user", "stars", "date").str.join("\n")
                by_item = pl.DataFrame(ratings).group_by("item", maintain_order=True).agg(lines=lines)
                file.write(by_item.select(pl.format("{}:\n{}\n", "item", "lines").str.join()).item().encode())
    return names
