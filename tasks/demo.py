"""Simulate the demo: a log in the Netflix Prize format by the paper's generative model, and its truth.

Degrees come from power laws with exponential cut-off, half-edges are paired into the hidden graph H, and a Bernoulli
draw per considered edge decides whether it is liked (Paquet and Koenigstein 2014, sections 2 and 3). A like becomes 4
or 5 stars, a considered item that is not liked 1 to 3: lines `USER,STARS,YYYY-MM-DD` below a line `ITEM:` of each item,
in `combined_data_1.txt`, up to `_4` for a large log. `<home>/demo/truth/` stores what a real log hides:

    settings.json    settings, seed, generator version, degree distributions, resulting counts, and sha256s
    edges.parquet    one row per edge of H: user, item (ids as in the log), probability, liked
    users.npy, items.npy, item_bias.npy    u (M, K), v (N, K), b (N,), float32; row i belongs to id i + 1

Upper bounds at the default size and seed 1, with one like of every user with two or more held out: the ranking by
(degree in H) x sigma(u'v + b), which knows the truth, has mean rank .961 and nDCG@100 .372; popularity has .935 and
.246. (Mean rank: the share of items not liked that rank below the held-out one.)
"""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from oneclass.models.degrees.distributions import Distribution, power_law_with_mean
from oneclass.models.generator.hidden_graph import NotGraphical, draw_graph
from oneclass.models.generator.likes import LikeFactors, draw_like_factors, draw_likes, draw_ratings, like_probabilities
from oneclass.models.numerics.adjacency import partition_rows
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

GENERATOR_VERSION = 2  # increase it whenever a seed gives another log
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

RatingFunction = Callable[[np.ndarray, np.ndarray, slice], tuple[np.ndarray, np.ndarray]]


class DemoSettings(BaseModel):
    """The size of the demo's log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    """Write the log to `home.landing` and the truth to `home.truth`, unless they exist.

    Files are completed in a temporary folder and then moved; only then are those of an earlier demo removed. Equal
    settings and seed give equal bytes.

    Returns:
        The log files, in order.

    Raises:
        InputError: sizes that no graph has, or a home that is not writable.
    """
    check_sizes(settings)
    inputs = {"generator": GENERATOR_VERSION, "seed": seed, "settings": settings.model_dump()}
    if (existing := _find_existing_log(home, inputs)) is not None:
        return existing
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".demo-", dir=home.folder))
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error
    try:
        simulation = simulate_likes(settings, seed)
        return _install_files(home, temporary, _write_files(temporary, simulation, inputs))
    except OSError as error:
        raise OneclassError(
            f"{home.folder}: the demo could not be written ({error.strerror or error}). "
            "Free some space or choose another --home, then run again."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_sizes(settings: DemoSettings) -> None:
    """Reject sizes that no graph has.

    Raises:
        InputError: too few or too many likes for the users and items.
    """
    users, items = settings.users, settings.items
    considered = settings.likes / LIKE_SHARE
    wanted = f"demo.likes = {settings.likes:,} is {considered:.0f}"
    if considered <= max(users, items):
        raise InputError(
            f"{wanted} considered edges, but demo.users = {users:,} and demo.items = {items:,} need more "
            f"than {max(users, items):,}, so that each has one. Raise demo.likes."
        )
    if considered > MAX_DENSITY * users * items:
        raise InputError(
            f"{wanted} considered edges, more than {MAX_DENSITY:.0%} of the {users * items:,} pairs of "
            "demo.users and demo.items. Lower demo.likes, or raise demo.users or demo.items."
        )


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
    """Simulate H, the traits and the likes."""
    counts = settings.users, settings.items
    distributions, starts, users = _draw_hidden_graph(settings, seed)
    if settings.likes >= len(users):
        raise InputError(
            f"demo.likes = {settings.likes:,}: the graph that was drawn has only {len(users):,} considered edges. "
            "Lower demo.likes, or take another --seed."
        )
    traits = draw_like_factors(counts, TRAITS, LOGIT_SD, BIAS_SD, seed)
    traits, probability = like_probabilities(traits, starts, users, settings.likes)
    return Simulation(distributions, traits, starts, users, probability, draw_likes(starts, users, probability, seed))


def _draw_hidden_graph(
    settings: DemoSettings, seed: int
) -> tuple[tuple[Distribution, Distribution], np.ndarray, np.ndarray]:
    """Draw the degree distributions in H, and H by item.

    A dense graph cannot have degrees as uneven as a small exponent gives: a user with one edge cannot avoid the items
    that every user considers. If the drawn degrees do not fit together, both exponents are lowered in steps, which
    evens them out.
    """
    for step in range(EXPONENT_STEPS):
        distributions = solve_degree_distributions(settings, lowered=0.25 * step)
        try:
            return distributions, *draw_graph(*distributions, (settings.users, settings.items), seed)
        except NotGraphical:
            continue
    raise InputError(
        f"demo.likes = {settings.likes:,}: no graph as dense as this was found for demo.users = {settings.users:,} and "
        f"demo.items = {settings.items:,}. Lower demo.likes."
    )


def _find_existing_log(home: Home, inputs: dict[str, Any]) -> list[Path] | None:
    """Return the log files of an earlier run with the same settings and seed, if every file is unchanged."""
    written = _list_written_files(home)
    if {key: written.get(key) for key in inputs} != inputs:
        return None
    truth = {home.truth / name: digest for name, digest in written.get("truth", {}).items()}
    logs = {home.landing / name: digest for name, digest in written.get("logs", {}).items()}
    damaged = [str(file) for file, digest in (truth | logs).items() if _file_sha256(file) != digest]
    if damaged:
        logger.warning("%s: not as the demo left it; the demo is made anew", ", ".join(damaged))
    return list(logs) if truth and logs and not damaged else None


def _file_sha256(file: Path) -> str | None:
    """Return the sha256 of a file; None if it is absent or unreadable."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _list_written_files(home: Home) -> dict[str, Any]:
    try:
        written = json.loads((home.truth / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def _install_files(home: Home, temporary: Path, written: dict[str, Any]) -> list[Path]:
    """Move complete files into place. The settings file, which makes them valid, is removed first and written last."""
    earlier = set(_list_written_files(home).get("logs", ()))
    for folder in (home.landing, home.truth):
        durable.make_folder(folder)
    (home.truth / "settings.json").unlink(missing_ok=True)
    for name in written["truth"]:
        durable.install_file(temporary / name, home.truth / name)
    for name in written["logs"]:
        durable.install_file(temporary / name, home.landing / name)
    for name in earlier - set(written["logs"]):
        (home.landing / name).unlink(missing_ok=True)
    text = json.dumps(written, indent=2) + "\n"
    durable.write_text(temporary / "settings.json", home.truth / "settings.json", text)
    return [home.landing / name for name in written["logs"]]


def _write_files(folder: Path, simulation: Simulation, inputs: dict[str, Any]) -> dict[str, Any]:
    """Write the log and the truth. Returns the contents of `settings.json`."""
    for name, values in (("users", simulation.traits.users), ("items", simulation.traits.items)):
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "item_bias.npy", simulation.traits.item_bias)
    _write_edges(folder / "edges.parquet", simulation)
    truth = ["edges.parquet", "users.npy", "items.npy", "item_bias.npy"]

    def rating(users: np.ndarray, items: np.ndarray, edges: slice) -> tuple[np.ndarray, np.ndarray]:
        stars, days = draw_ratings(users, items, simulation.liked[edges], inputs["seed"], NUM_DAYS)
        return stars, FIRST_DAY + days

    logs = write_ratings_log(folder, simulation.starts, simulation.users, rating)
    distributions = {
        side: {
            "exponent": distribution.exponent,
            "cutoff": distribution.cutoff,
            "d_min": distribution.d_min,
            "d_max": distribution.d_max,
            "mean": distribution.mean,
        }
        for side, distribution in zip(("user", "item"), simulation.degree_distributions, strict=True)
    }
    return inputs | {
        "laws": distributions,
        "considered": len(simulation.users),
        "liked": int(simulation.liked.sum()),
        "logs": {name: _file_sha256(folder / name) for name in logs},
        "truth": {name: _file_sha256(folder / name) for name in truth},
    }


def _write_edges(path: Path, simulation: Simulation) -> None:
    columns = {"user": pa.int32(), "item": pa.int32(), "probability": pa.float32(), "liked": pa.bool_()}
    with pq.ParquetWriter(path, pa.schema(columns)) as writer:
        for first, end in partition_items_by_edges(simulation.starts, 0, len(simulation.starts) - 1):
            part = slice(simulation.starts[first], simulation.starts[end])
            arrays = (
                simulation.users[part] + 1,
                expand_items(simulation.starts, first, end) + 1,
                simulation.probability[part],
            )
            writer.write_table(pa.table([*map(pa.array, arrays), pa.array(simulation.liked[part])], pa.schema(columns)))


def partition_items_by_edges(starts: np.ndarray, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [i, j) of the items [first, last) with about `EDGES_PER_BLOCK` edges, at least one item each."""
    while first < last:
        end = int(np.searchsorted(starts, starts[first] + EDGES_PER_BLOCK, side="right")) - 1
        end = min(max(end, first + 1), last)
        yield first, end
        first = end


def expand_items(starts: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the item of each edge of the items [first, end), int32."""
    return np.repeat(np.arange(first, end, dtype=np.int32), np.diff(starts[first : end + 1]))


def write_ratings_log(folder: Path, starts: np.ndarray, users: np.ndarray, rate: RatingFunction) -> list[str]:
    """Write the ratings of a graph; ids are indices plus one.

    Args:
        starts, users: CSR by item, int64 (N + 1,) and int32 (edges,).
        rate: maps users, items and positions of some edges to their stars (1 to 5) and dates (datetime64[D]).

    Returns:
        The names of the files.
    """
    files = min(MAX_FILES, -(-len(users) // LINES_PER_FILE))
    shares = partition_rows(starts, files)
    names = [f"combined_data_{number}.txt" for number in range(1, files + 1)]
    for name, low, high in zip(names, shares[:-1], shares[1:], strict=True):
        with open(folder / name, "wb") as file:
            parts = partition_items_by_edges(starts, int(low), int(high))
            file.writelines(_format_lines(starts, users, rate, first, end) for first, end in parts)
    return names


def _format_lines(starts: np.ndarray, users: np.ndarray, rate: RatingFunction, first: int, end: int) -> bytes:
    """Format the lines of the items [first, end), each of which has an edge."""
    part = slice(starts[first], starts[end])
    users, items = users[part], expand_items(starts, first, end)
    stars, dates = rate(users, items, part)
    ratings = pl.DataFrame({"item": items + 1, "user": users + 1, "stars": stars, "date": dates})
    lines = pl.format("{},{},{}", "user", "stars", "date").str.join("\n")
    by_item = ratings.group_by("item", maintain_order=True).agg(lines=lines)
    return by_item.select(pl.format("{}:\n{}\n", "item", "lines").str.join()).item().encode()
