"""What the benchmarks share: clocks, runs of the commands, logs, splits, rankings and Markdown tables."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets

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
    """Run `python -m WORDS`, with its output at the end of a file; the result is the status, -15 if it took too long.

    CPU seconds and the peak are those of the process and of all that it waited for.
    """
    began = time.perf_counter()
    with log.open("ab") as output:
        command = [sys.executable, "-m", *map(str, words)]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if at_most is not None and time.perf_counter() - began > at_most:
                process.terminate()
                ended = os.wait4(process.pid, 0)
                break
            time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
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


class Split(NamedTuple):
    """The training edges, and the validation and test users, of whom the first may be absent."""

    train: csr_matrix
    validation: Part | None
    test: Part


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `load_splits` reads."""
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--split-files", nargs=2, default=[], metavar=("TRAIN", "TEST"))
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the split, for example")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)


def load_splits(options: argparse.Namespace, protocols: Sequence[str]) -> dict[str, Split]:
    """Let the pipeline split a log: run a backfill of `popularity` alone in a home of its own, and read its tables."""
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), ["flows.backfill", "--dataset", options.dataset, "--home", name]
        for flag in ("source", "split_files"):
            values = getattr(options, flag)
            words += [f"--{flag.replace('_', '-')}", *values] if values else []
        words += ["--seed", options.seed, "--models", "popularity", "--protocols", ",".join(protocols)]
        words += ["--set", "train.tune=off", "split.min_validation_users=0", *options.set]
        if run_command(words, folder / "log").result:
            raise SystemExit("\n".join((folder / "log").read_text().splitlines()[-5:]))
        with duckdb.connect(str(folder / options.dataset / "warehouse.duckdb"), read_only=True) as connection:
            return {protocol: _load_split(connection, protocol) for protocol in protocols}


def _load_split(connection: duckdb.DuckDBPyConnection, protocol: str) -> Split:
    table = f"splits.{protocol}"
    names = [name for name, *_ in connection.execute(f"describe {table}").fetchall()]
    if "role" not in names:  # it has the held-out edges alone
        held_out = f"(select user_id, item_id, true as held from {table})"
        both = f"(from curated.interactions left join {held_out} using (user_id, item_id))"
        table = f"(select *, if(held, 'test', 'train') as part, if(held, 'target', 'fit') as role from {both})"
    query = f"""
        select part, role, user_index, item_index, user_id, item_id
        from (select part, role, user_id, item_id from {table})
        join curated.interactions using (user_id, item_id)
    """
    edges = connection.execute(query).fetchnumpy()
    users, items = edges["user_index"].astype(np.int64), edges["item_index"].astype(np.int64)
    is_fit = edges["role"] == "fit"
    known, columns = np.unique(items[is_fit], return_inverse=True)
    trained, rows = np.unique(users[is_fit], return_inverse=True)
    train = build_matrix(rows, columns, (len(trained), len(known)))

    def load_part(name: str) -> Part | None:
        wanted = (edges["part"] == name) & (edges["role"] == "target") & np.isin(items, known)
        if not wanted.any():
            return None
        tested, targets = np.unique(users[wanted], return_inverse=True)
        shape = (len(tested), len(known))
        found = build_matrix(targets, np.searchsorted(known, items[wanted]), shape)
        if np.isin(tested, trained).all():
            own = np.searchsorted(trained, tested)
            return Part(train[own], found, own)
        of = (edges["part"] == name) & (edges["role"] == "fold_in") & np.isin(users, tested) & np.isin(items, known)
        history = build_matrix(np.searchsorted(tested, users[of]), np.searchsorted(known, items[of]), shape)
        return Part(history, found)

    test = load_part("test")
    if test is None:
        raise SystemExit(f"{protocol}: no test user has an item to be found")
    return Split(train, load_part("validation"), test)


def rank_users(score: Scorer, part: Part) -> dict[str, np.ndarray]:
    """Compute the ranking metrics of each user, among the items outside of the history."""
    blocks = []
    for first in range(0, part.targets.shape[0], USERS_PER_BLOCK):
        block = slice(first, first + USERS_PER_BLOCK)
        scores = score(part.histories[block], None if part.rows is None else part.rows[block])
        table = np.ascontiguousarray(scores, dtype=np.float32)
        blocks.append(compute_user_metrics(rank_targets(table, part.histories[block], part.targets[block])))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def format_mean(values: np.ndarray, digits: int = 4) -> str:
    """Format a mean over users with its standard error."""
    values = values[~np.isnan(values)]
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def print_head(columns: Iterable[str]) -> None:
    """Print the two lines above a table's rows."""
    names = list(columns)
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)


def print_row(cells: Iterable[Any]) -> None:
    """Print a table's row."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
