"""Ingest against a bare `CREATE TABLE AS SELECT * FROM read_csv(...)` of the same file, in the same run.

    python -m benchmarks.speed.ingest [--lines 5000000] [--threads 2]

Prints, for MovieLens's CSV and the Netflix Prize's format, the least of three repeats. `bare` lets DuckDB
choose the columns' types, so that ids become integers where they can, and has no line numbers; `bare, ids
as text` keeps ids as text, as `raw.events` must. `stage` is the whole stage, contracts included; Great
Expectations and compiled code are loaded before. `without contracts` is one pass over the bytes (sha256, lines,
encoding), the parser's own, commit. Processor seconds are the steadier figure on a busy machine.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from oneclass.data_contracts import lazy_gx
from oneclass.tasks import datasets
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

REPEATS = 3
MOVIELENS = """
copy (
    select
        i // 144 + 1 as "userId", (26000 * pow(random(), 3))::int + 1 as "movieId",
        ((random() * 9)::int + 1) / 2.0 as rating, 1000000000 + (random() * 400000000)::int as timestamp
    from range({lines}) as t(i) order by i
) to '{path}' (header)
"""
NETFLIX = """
copy (
    select case
        when i % 5654 = 0 then (i // 5654 + 1) || ':'
        else (random() * 2649429)::int + 1 || ',' || ((random() * 4)::int + 1) || ','
            || strftime(date '1999-11-11' + (random() * 2240)::int, '%Y-%m-%d')
    end
    from range({lines}) as t(i) order by i
) to '{path}' (header false, quote '', delimiter '|')
"""
MOVIELENS_IDS = "types = {{'userId': 'VARCHAR', 'movieId': 'VARCHAR'}}"
NETFLIX_IDS = "auto_detect = false, columns = {{'user_id': 'VARCHAR', 'stars': 'BIGINT', 'day': 'DATE'}}"


def measured(work: Callable[[], int]) -> tuple[float, float, int]:
    """Least wall seconds and processor seconds of the repeats, and what the last returned."""
    walls, processors = [], []
    for _ in range(REPEATS):
        wall, processor = time.perf_counter(), time.process_time()
        rows = work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return min(walls), min(processors), rows


def bare(path: Path, folder: Path, limits: Limits, options: str) -> int:
    """Rows of the table that DuckDB makes of the file by itself."""
    database = folder / "bare.duckdb"
    database.unlink(missing_ok=True)
    with duckdb.connect(str(database), config={"threads": limits.threads, "memory_limit": f"{limits.memory}B"}) as con:
        con.execute(f"create table bare as select * from read_csv('{path}'{options})")
        return con.execute("select count(*) from bare").fetchone()[0]


def ingested(path: Path, folder: Path, limits: Limits, name: str) -> int:
    """Events that the stage makes of the file, its contracts left out."""
    home, dataset = Home(folder, name, limits), datasets.load_dataset(name, folder)
    home.warehouse.unlink(missing_ok=True)
    path.touch()  # each repeat is to look through the file, rather than take what the one before found
    logs = SourceScanner(dataset).scan([path])
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        load_logs(connection, list(enumerate(logs, 1)), folder, dataset)
        connection.commit()
        return connection.execute("select count(*) from raw.events").fetchone()[0]


def run_whole_stage(path: Path, folder: Path, limits: Limits, name: str) -> int:
    """Events that the stage makes of the file, its contracts checked."""
    home, dataset = Home(folder, name, limits), datasets.load_dataset(name, folder)
    shutil.rmtree(home.folder, ignore_errors=True)
    path.touch()
    return ingest(home, dataset, [path], "run").events


def compare(name: str, query: str, options: str, ids: str, lines: int, limits: Limits) -> None:
    """Make a file, read it in three ways, check that the counts agree and print a line for each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = folder / ("ratings.csv" if name == "ml-20m" else "combined_data_1.txt")
        with duckdb.connect(config={"threads": 1}) as con:
            con.execute(query.format(lines=lines, path=path))
        ways = {
            "bare": lambda: bare(path, folder, limits, options),
            "bare, ids as text": lambda: bare(path, folder, limits, f"{options}, {ids.format()}"),
            "without contracts": lambda: ingested(path, folder, limits, name),
            "stage": lambda: run_whole_stage(path, folder, limits, name),
        }
        found = {way: measured(work) for way, work in ways.items()}
        headers = -(-lines // 5654) if name == "netflix" else 0
        assert found["stage"][2] + headers == found["bare"][2] == lines, found
        print(f"{name}: {lines} lines, {path.stat().st_size >> 20} MB, {limits.threads} threads")
        for way, (wall, processor, _) in found.items():
            over = (
                " ".join(
                    f"{wall / found[of][0]:.2f}x wall, {processor / found[of][1]:.2f}x processor of {of};"
                    for of in ways
                    if of.startswith("bare")
                )
                if not way.startswith("bare")
                else ""
            )
            print(f"  {way:18} {wall:6.2f} s wall {processor:6.2f} s processor  {over}")


def main() -> None:
    """Compare on both formats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    lazy_gx.load_great_expectations()  # before the clock starts
    limits = Limits(threads=arguments.threads, memory=4 << 30)
    compare("ml-20m", MOVIELENS, "", MOVIELENS_IDS, arguments.lines, limits)
    compare("netflix", NETFLIX, ", header = false, null_padding = true", NETFLIX_IDS, arguments.lines, limits)


if __name__ == "__main__":
    main()
