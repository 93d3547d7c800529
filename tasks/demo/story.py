"""The embedded data set: a log in the Netflix Prize format by the paper's generative story, and its truth.

Degrees come from power laws with exponential cut-off, half-edges are paired into the hidden graph H, and one
biased coin a considered edge decides whether it is liked (Paquet and Koenigstein 2014, sections 2 and 3). A
like becomes 4 or 5 stars, a considered item that is not liked 1 to 3. What a real log hides is kept in
`<home>/demo/truth/`:

    settings.json    settings, seed, generator version, the laws of the degrees, what came out, and sha256s
    edges.parquet    one row per edge of H: user, item (ids as in the log), probability, liked
    users.npy, items.npy, item_bias.npy    u (M, K), v (N, K), b (N,), float32; row i belongs to id i + 1

What there is to learn, at the default size and seed 1, one like held out of every user with two or more:
the ranking by (degree in H) x sigma(u'v + b), which knows the truth, has mean rank .961 and nDCG@100 .372;
popularity has .935 and .246. (Mean rank: the share of the items not liked that stand below the one held out.)
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from oneclass.models.degrees.distributions import Distribution, power_law_with_mean
from oneclass.models.generator.hidden_graph import NotGraphical, draw_graph
from oneclass.models.generator.likes import LikeFactors, draw_like_factors, draw_likes, draw_ratings, like_probabilities
from oneclass.tasks.demo.netflix_writer import expand_items, partition_items_by_edges, write_ratings_log
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

GENERATOR_VERSION = 1  # raise it with every change of what a seed gives
FIRST_DAY, NUM_DAYS = np.datetime64("2001-01-01"), 5 * 365
MAX_DENSITY = 0.8  # the largest share of all pairs that may be considered
EXPONENT_STEPS = 80


class DemoSettings(BaseModel):
    """The size and the character of the demo's log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: int = Field(2_500, ge=2, le=9_999_999, description="Users M; each considers at least one item.")
    items: int = Field(1_500, ge=2, le=999_999, description="Items N; each is considered by at least one user.")
    likes: int = Field(100_000, ge=1, description="Edges of the observed graph G, met in expectation.")
    like_share: float = Field(0.35, gt=0, lt=1, description="Likes among the considered edges, on average.")
    traits: int = Field(4, ge=1, le=200, description="K, the latent traits of a user and of an item.")
    logit_sd: float = Field(3.0, ge=0, le=10, description="Standard deviation of u'v, the taste in a coin's logit.")
    bias_sd: float = Field(0.5, ge=0, le=10, description="Standard deviation of the items' biases in the logit.")
    user_exponent: float = Field(
        0.5,
        ge=-5,
        le=5,
        description="Power of the users' degrees in H; lowered where the graph is too dense for it.",
    )
    item_exponent: float = Field(
        0.77,
        ge=-5,
        le=5,
        description="Power of the items' degrees in H; lowered where the graph is too dense for it.",
    )


@dataclass(frozen=True)
class Simulation:
    """All that was drawn; edges are sorted by item, then user.

    Attributes:
        laws: of the degrees in H, of users and of items.
        starts: int64 (N + 1,), where the edges of each item begin.
        users: int32 (edges,), user of each edge of H.
        probability: float32 (edges,), of the coin.
        liked: bool (edges,), the coin.
    """

    degree_distributions: tuple[Distribution, Distribution]
    traits: LikeFactors
    starts: np.ndarray
    users: np.ndarray
    probability: np.ndarray
    liked: np.ndarray


def make_demo(home: Home, settings: DemoSettings, seed: int) -> list[Path]:
    """Write the log to `home.landing` and the truth to `home.truth`, unless they are there already.

    No file is ever seen half-written: all are completed in a folder of their own and then moved, and only then are
    those of an earlier demo removed. The same settings and seed give the same bytes.

    Returns:
        The log files, in order.

    Raises:
        InputError: sizes that no graph has, or a home that cannot be written to.
    """
    check_sizes(settings)
    asked = {"generator": GENERATOR_VERSION, "seed": seed, "settings": settings.model_dump()}
    if (kept := _find_existing_log(home, asked)) is not None:
        return kept
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".demo-", dir=home.folder))
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error
    try:
        story = simulate_likes(settings, seed)
        return _install_files(home, making, _write_files(making, story, asked))
    except OSError as error:
        raise OneclassError(
            f"{home.folder}: the demo could not be written ({error.strerror or error}). "
            "Free some space or choose another --home, then run again."
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def check_sizes(settings: DemoSettings) -> None:
    """Refuse sizes that no graph has.

    Raises:
        InputError: there are too few or too many likes for the users and items.
    """
    users, items = settings.users, settings.items
    considered = settings.likes / settings.like_share
    wanted = f"demo.likes = {settings.likes:,} at demo.like_share = {settings.like_share} is {considered:.0f}"
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
    """The laws of the users' and the items' degrees in H, their cut-offs solved so that eq. 1 holds.

    Args:
        lowered: taken from both exponents.
    """
    users, items, considered = settings.users, settings.items, settings.likes / settings.like_share
    return (
        power_law_with_mean(considered / users, settings.user_exponent - lowered, items),
        power_law_with_mean(considered / items, settings.item_exponent - lowered, users),
    )


def simulate_likes(settings: DemoSettings, seed: int) -> Simulation:
    """Draw everything: H, the traits, the coins."""
    counts = settings.users, settings.items
    laws, starts, users = _draw_hidden_graph(settings, seed)
    if settings.likes >= len(users):
        raise InputError(
            f"demo.likes = {settings.likes:,}: the graph that was drawn has only {len(users):,} considered edges. "
            "Lower demo.like_share, or take another --seed."
        )
    traits = draw_like_factors(counts, settings.traits, settings.logit_sd, settings.bias_sd, seed)
    traits, probability = like_probabilities(traits, starts, users, settings.likes)
    return Simulation(laws, traits, starts, users, probability, draw_likes(starts, users, probability, seed))


def _draw_hidden_graph(
    settings: DemoSettings, seed: int
) -> tuple[tuple[Distribution, Distribution], np.ndarray, np.ndarray]:
    """The laws of the degrees in H, and H by item.

    A dense graph has no room for degrees as uneven as those of a small exponent's law: a user with one edge
    cannot go without the items that every user considers. Where none of the degrees drawn fit together, both
    exponents are lowered by steps, which makes the degrees more even.
    """
    for step in range(EXPONENT_STEPS):
        laws = solve_degree_distributions(settings, lowered=0.25 * step)
        try:
            return laws, *draw_graph(*laws, (settings.users, settings.items), seed)
        except NotGraphical:
            continue
    raise InputError(
        f"demo.likes = {settings.likes:,}: no graph as dense as this was found for demo.users = {settings.users:,} and "
        f"demo.items = {settings.items:,}. Lower demo.likes."
    )


def _find_existing_log(home: Home, asked: dict[str, Any]) -> list[Path] | None:
    """The log files of an earlier run with the same settings and seed, when every file is as it was left."""
    made = _list_written_files(home)
    if {key: made.get(key) for key in asked} != asked:
        return None
    truth = {home.truth / name: digest for name, digest in made.get("truth", {}).items()}
    logs = {home.landing / name: digest for name, digest in made.get("logs", {}).items()}
    damaged = [str(file) for file, digest in (truth | logs).items() if _file_sha256(file) != digest]
    if damaged:
        logger.warning("%s: not as the demo left it; the demo is made anew", ", ".join(damaged))
    return list(logs) if truth and logs and not damaged else None


def _file_sha256(file: Path) -> str | None:
    """Of a file's bytes; None where it is absent or cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _list_written_files(home: Home) -> dict[str, Any]:
    try:
        made = json.loads((home.truth / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}


def _install_files(home: Home, making: Path, made: dict[str, Any]) -> list[Path]:
    """Put complete files in place. The settings file is removed first and written last: only with it do they count."""
    earlier = set(_list_written_files(home).get("logs", ()))
    for folder in (home.landing, home.truth):
        folder.mkdir(parents=True, exist_ok=True)
    (home.truth / "settings.json").unlink(missing_ok=True)
    for name in made["truth"]:
        os.replace(making / name, home.truth / name)
    for name in made["logs"]:
        os.replace(making / name, home.landing / name)
    for name in earlier - set(made["logs"]):
        (home.landing / name).unlink(missing_ok=True)
    (making / "settings.json").write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    os.replace(making / "settings.json", home.truth / "settings.json")
    return [home.landing / name for name in made["logs"]]


def _write_files(folder: Path, simulation: Simulation, asked: dict[str, Any]) -> dict[str, Any]:
    """Write the log and the truth; returns what `settings.json` will say."""
    for name, values in (("users", simulation.traits.users), ("items", simulation.traits.items)):
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "item_bias.npy", simulation.traits.item_bias)
    _write_edges(folder / "edges.parquet", simulation)
    truth = ["edges.parquet", "users.npy", "items.npy", "item_bias.npy"]

    def rating(users: np.ndarray, items: np.ndarray, edges: slice) -> tuple[np.ndarray, np.ndarray]:
        stars, days = draw_ratings(users, items, simulation.liked[edges], asked["seed"], NUM_DAYS)
        return stars, FIRST_DAY + days

    logs = write_ratings_log(folder, simulation.starts, simulation.users, rating)
    laws = {
        side: {
            "exponent": law.exponent,
            "cutoff": law.cutoff,
            "d_min": law.d_min,
            "d_max": law.d_max,
            "mean": law.mean,
        }
        for side, law in zip(("user", "item"), simulation.degree_distributions, strict=True)
    }
    return asked | {
        "laws": laws,
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
