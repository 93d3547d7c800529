"""Compare ingest with a bare `CREATE TABLE AS SELECT * FROM read_csv(...)` of the same file, in the same run.

    python -m benchmarks.speed.ingest [--lines 5000000] [--threads 2]

Prints the least of three repeats for MovieLens's CSV and the Netflix Prize's format. `bare` lets DuckDB choose the
columns' types, so ids become integers where possible, and has no line numbers; `bare, ids as text` keeps ids as text,
as `raw.events` must. `stage` is the whole stage with its contracts; Great Expectations and compiled code are loaded
before. `without contracts` is one pass over the bytes (sha256, lines, encoding), the parser and the commit. Trust CPU
seconds more than the wall clock.
"""

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path

import duckdb

from benchmarks.speed.timing import time_least
from oneclass.data_contracts import lazy_gx
from oneclass.tasks import datasets
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

REPEATS = 3
LINES_PER_MOVIE = 5654  # of the Netflix format, the header among them
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
        when i % {block} = 0 then (i // {block} + 1) || ':'
        else (random() * 2649429)::int + 1 || ',' || ((random() * 4)::int + 1) || ','
            || strftime(date '1999-11-11' + (random() * 2240)::int, '%Y-%m-%d')
    end
    from range({lines}) as t(i) order by i
) to '{path}' (header false, quote '', delimiter '|')
"""
MOVIELENS_IDS = "types = {{'userId': 'VARCHAR', 'movieId': 'VARCHAR'}}"
NETFLIX_IDS = "auto_detect = false, columns = {{'user_id': 'VARCHAR', 'stars': 'BIGINT', 'day': 'DATE'}}"


def read_bare(path: Path, folder: Path, limits: Limits, options: str) -> int:
    """Read the file by DuckDB alone; returns the rows of its table."""
    database = folder / "bare.duckdb"
    database.unlink(missing_ok=True)
    with duckdb.connect(
        str(database), config={"threads": limits.threads, "memory_limit": f"{limits.memory}B"}
    ) as connection:
        connection.execute(f"create table bare as select * from read_csv('{path}'{options})")
        return connection.execute("select count(*) from bare").fetchone()[0]


def ingest_without_contracts(path: Path, folder: Path, limits: Limits, name: str) -> int:
    """Ingest the file without the contracts; returns the events."""
    home, dataset = Home(folder, name, limits), datasets.load_dataset(name, folder)
    home.warehouse.unlink(missing_ok=True)
    path.touch()  # otherwise a repeat would take over the results of the one before
    logs = SourceScanner(dataset).scan([path])
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        load_logs(connection, list(enumerate(logs, 1)), folder, dataset)
        connection.commit()
        return connection.execute("select count(*) from raw.events").fetchone()[0]


def run_stage(path: Path, folder: Path, limits: Limits, name: str) -> int:
    """Ingest the file with the contracts; returns the events."""
    home, dataset = Home(folder, name, limits), datasets.load_dataset(name, folder)
    shutil.rmtree(home.folder, ignore_errors=True)
    path.touch()
    return ingest(home, dataset, [path], "run").events


def compare_readers(name: str, query: str, options: str, ids: str, lines: int, limits: Limits) -> None:
    """Draw a file, read it in four ways, check that the counts agree, and print a line for each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = folder / ("ratings.csv" if name == "ml-20m" else "combined_data_1.txt")
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(query.format(lines=lines, path=path, block=LINES_PER_MOVIE))
        readers = {
            "bare": partial(read_bare, path, folder, limits, options),
            "bare, ids as text": partial(read_bare, path, folder, limits, f"{options}, {ids.format()}"),
            "without contracts": partial(ingest_without_contracts, path, folder, limits, name),
            "stage": partial(run_stage, path, folder, limits, name),
        }
        timings = {reader: time_least(read, REPEATS) for reader, read in readers.items()}
        headers = -(-lines // LINES_PER_MOVIE) if name == "netflix" else 0
        assert timings["stage"].result + headers == timings["bare"].result == lines, timings
        print(f"{name}: {lines} lines, {path.stat().st_size >> 20} MB, {limits.threads} threads")
        for reader, (_, wall, cpu) in timings.items():
            ratios = [
                f"{wall / timings[bare].wall:.2f}x wall, {cpu / timings[bare].cpu:.2f}x CPU of {bare};"
                for bare in ("bare", "bare, ids as text")
            ]
            shown = "" if reader.startswith("bare") else " ".join(ratios)
            print(f"  {reader:18} {wall:6.2f} s wall {cpu:6.2f} s CPU  {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    lazy_gx.load_great_expectations()  # before the clock starts
    limits = Limits(threads=options.threads, memory=4 << 30)
    compare_readers("ml-20m", MOVIELENS, "", MOVIELENS_IDS, options.lines, limits)
    compare_readers("netflix", NETFLIX, ", header = false, null_padding = true", NETFLIX_IDS, options.lines, limits)


if __name__ == "__main__":
    main()
