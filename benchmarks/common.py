"""What the benchmarks share: clocks, runs of the commands, logs, splits, rankings and Markdown tables."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.tasks.stores.home import Home

USERS_PER_BLOCK = 1000
Scorer = Callable[[csr_matrix, np.ndarray | None], np.ndarray]  # histories and rows of training, to (users, items)


class Timing(NamedTuple):
    """The result of a call or a command, its wall and CPU seconds, and the peak bytes of a command's largest process.

    CPU seconds are over all threads. On a busy machine trust them more than the wall clock.
    """

    result: Any
    wall: float
    cpu: float
    peak: int = 0


def parse_options(description: str, arguments: Sequence[str] | None = None, **defaults: Any) -> argparse.Namespace:
    """Parse the command line's `--NAME VALUE`, each of the type of its default.

    A list has several values of the type of its first, else texts; a truth value is a flag.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if isinstance(default, bool):
            kind: dict[str, Any] = {"action": "store_true"}
        elif isinstance(default, list):
            kind = {"nargs": "*", "type": type(default[0]) if default else str}
        else:
            kind = {"type": type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **kind)
    return parser.parse_args(arguments)


def time_call(work: Callable[[], Any], repeats: int = 1) -> Timing:
    """Call `work` several times; return the last result with the least wall and CPU seconds."""
    timings = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        timings.append(Timing(result, time.perf_counter() - wall, time.process_time() - cpu))
    return Timing(timings[-1].result, min(one.wall for one in timings), min(one.cpu for one in timings))


def run_command(
    words: Sequence[Any], log: Path, *, at_most: float | None = None, environment: Mapping[str, str] | None = None
) -> Timing:
    """Run `python -m WORDS`, with its output in a file; the result is the status, -15 if stopped.

    Without `at_most` it has to succeed.
    """
    began = time.perf_counter()
    with log.open("wb") as output:
        command = [sys.executable, "-m", *map(str, words)]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if at_most is not None and time.perf_counter() - began > at_most:
                process.terminate()
                ended = os.wait4(process.pid, 0)
                break
            time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode and at_most is None:
        raise SystemExit("\n".join(log.read_text(errors="replace").splitlines()[-10:]))
    used = ended[2]
    cpu = used.ru_utime + used.ru_stime
    return Timing(process.returncode, time.perf_counter() - began, cpu, 1024 * used.ru_maxrss)


def build_matrix(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Build the matrix of ones of some edges, with sorted columns; repeated edges count once."""
    matrix = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def draw_log(users: int, items: int, edges: int, seed: int = 0) -> csr_matrix:
    """Draw users of Pareto degrees, none above 40 times the mean, and items in proportion to (rank + 20)^-0.8."""
    generator = np.random.default_rng(seed)
    degrees = np.minimum(generator.pareto(1.5, users) + 0.3, 40)
    rows = np.repeat(np.arange(users), generator.poisson(degrees * edges / degrees.sum()))
    popularity = np.cumsum((np.arange(items) + 20.0) ** -0.8)
    columns = np.searchsorted(popularity, generator.random(len(rows)) * popularity[-1])
    return build_matrix(rows, columns, (users, items))


class Part(NamedTuple):
    """Users to rank for: their histories, the items to be found, and their rows in training, if they have one."""

    histories: csr_matrix
    targets: csr_matrix
    rows: np.ndarray | None = None


@contextlib.contextmanager
def run_popularity(dataset: str, sources: Sequence[str], settings: Sequence[str] = (), seed: int = 0) -> Iterator[Home]:
    """Run a backfill of `popularity` alone on a log, in a home of its own that is there for the block."""
    with tempfile.TemporaryDirectory() as name:
        words = ["flows.backfill", "--dataset", dataset, "--home", name, "--seed", seed, "--models", "popularity"]
        words += ["--protocols", "strong_generalization", *(["--source", *sources] if sources else [])]
        words += ["--set", "train.tune=off", "split.min_validation_users=0", *settings]
        run_command(words, Path(name) / "log")
        yield Home(Path(name), dataset)


def rank_users(score: Scorer, part: Part) -> dict[str, np.ndarray]:
    """Compute the ranking metrics of each user, among the items outside of the history."""
    blocks = []
    for first in range(0, part.targets.shape[0], USERS_PER_BLOCK):
        block = slice(first, first + USERS_PER_BLOCK)
        scores = score(part.histories[block], None if part.rows is None else part.rows[block])
        table = np.ascontiguousarray(scores, dtype=np.float32)
        blocks.append(compute_user_metrics(rank_targets(table, part.histories[block], part.targets[block])))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def print_head(columns: Iterable[str]) -> None:
    """Print the two lines above a table's rows."""
    names = list(columns)
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)


def print_row(cells: Iterable[Any]) -> None:
    """Print a table's row."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
