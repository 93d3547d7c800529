"""Compare ingest, binarize and split with bare statements of DuckDB over the same data, in the same run.

    python -m benchmarks.stages [--lines 5000000] [--threads 1] [--repeats 3]

Draws a log of MovieLens' columns, and one of Netflix' format (`films`) for ingest. `bare` is `create table as select *
from read_csv(...)`, with types that DuckDB chooses and with ids as text, as `raw.events` has them. The other bare
statements number users and items by their first like, add up the likes of each pair, and hold out a fifth of the users
and one edge of every user by hashes; they check nothing. The stages are measured whole, with their contracts, after a
small run that loads and compiles what they need. Prints the least CPU seconds of the repeats, and their ratio. For a
small run: `--lines 50000`.
"""

import itertools
import logging
import shutil
import tempfile
from functools import partial
from pathlib import Path

import duckdb

from benchmarks.common import parse_options, print_head, print_row, time_call
from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores.home import Home, Limits

DATASET, RUN, PROTOCOLS = "ml-20m", "run", ("strong_generalization", "leave_one_out")
LOG = """
copy (
    select
        i // 144 + 1 as "userId", (26000 * pow(random(), 3))::int + 1 as "movieId",
        ((random() * 9)::int + 1) / 2.0 as rating, 1000000000 + (random() * 400000000)::int as timestamp
    from range({lines}) as t(i) order by i
) to '{path}' (header)
"""
NETFLIX = """
copy (
    select if(
        i % 5600 = 0, (i // 5600 + 1) || ':',
        (i * 7919 % 480189) || ',' || (i % 5 + 1) || ',2004-0' || (i % 9 + 1) || '-' || (i % 18 + 10)
    ) as line
    from range({lines}) as t(i) order by i
) to '{path}' (header false, quote '', delimiter '|')
"""
READ = "create or replace table bare as select * from read_csv('{path}'{types})"
IDS_AS_TEXT = ", types = {'userId': 'VARCHAR', 'movieId': 'VARCHAR'}"
EDGES = """
create or replace table edges as
    with pairs as (
        select user_id, item_id, count(*) as events, min(occurred_at) as first_at, max(occurred_at) as last_at,
            min((file_id << 40) | line_number) as position
        from home.raw.events where value >= 4 group by user_id, item_id
    ), users as (
        select user_id, row_number() over (order by min(position)) - 1 as user_index from pairs group by user_id
    ), items as (
        select item_id, row_number() over (order by min(position)) - 1 as item_index from pairs group by item_id
    )
    select user_index, item_index, events, first_at, last_at, position
    from pairs join users using (user_id) join items using (item_id) order by user_index, item_index
"""
SPLITS = """
create or replace table splits as
    select user_index, item_index, hash(user_index) % 10 as part, hash(user_index, item_index) % 5 = 0 as is_target,
        hash(user_index, item_index) = max(hash(user_index, item_index)) over (partition by user_index) as is_left_out
    from edges order by user_index, item_index
"""


def main() -> None:
    options = parse_options(__doc__, lines=5_000_000, threads=1, repeats=3)
    logging.disable(logging.INFO)
    limits, numbers = Limits(threads=options.threads, memory=4 << 30), itertools.count(1)

    def run_ingest(home: Home, path: Path, dataset: str = DATASET) -> None:
        shutil.rmtree(home.folder, ignore_errors=True)
        path.touch()  # otherwise a repeat would take over the results of the one before
        ingest(home, datasets.load_dataset(dataset, home.root), [path], RUN)

    def run_binarize(home: Home) -> None:
        # Another threshold each time, as an unchanged stage is not run again.
        binarize(home, BinarizeSettings(threshold=4 - next(numbers) / 1000), RUN)

    def run_split(home: Home) -> None:
        split(home, RUN, SplitPlan(SplitSettings(held_out_share=0.1), PROTOCOLS, seed=next(numbers)))

    with tempfile.TemporaryDirectory() as name, duckdb.connect(f"{name}/bare.duckdb") as connection:
        connection.execute(f"set threads = {options.threads}")
        homes = [Home(Path(name) / folder, DATASET, limits) for folder in ("small", "home")]
        for home, lines in zip(homes, (10_000, options.lines), strict=True):
            home.root.mkdir()
            connection.execute(LOG.format(lines=lines, path=(path := home.root / "ratings.csv")))
            repeats, of_stages = (1 if home is homes[0] else options.repeats), {}
            for stage, work in (("ingest", partial(run_ingest, home, path)), ("binarize", partial(run_binarize, home)),
                                ("split", partial(run_split, home))):  # fmt: skip
                of_stages[stage] = time_call(work, repeats)
        films = Home(Path(name) / "films", "netflix", limits)
        films.root.mkdir()
        connection.execute(NETFLIX.format(lines=options.lines, path=(log := films.root / "combined_data_1.txt")))
        of_stages["films"] = time_call(partial(run_ingest, films, log, "netflix"), options.repeats)
        connection.execute(f"attach '{homes[1].warehouse}' as home (read_only)")
        bare = [("ingest", "bare read", READ.format(path=path, types="")),
                ("ingest", "bare read, ids as text", READ.format(path=path, types=IDS_AS_TEXT)),
                ("films", "bare read", READ.format(path=log, types=", null_padding = true, header = false")),
                ("binarize", "bare edges", EDGES), ("split", "bare splits", SPLITS)]  # fmt: skip
        print(f"{options.lines:,} lines, {path.stat().st_size >> 20} MB, {options.threads} threads\n")
        print_head(["stage", "CPU s", "against", "CPU s", "times"])
        for stage, label, statement in bare:
            cpu, own = of_stages[stage].cpu, time_call(partial(connection.execute, statement), options.repeats).cpu
            print_row([stage, f"{cpu:.2f}", label, f"{own:.2f}", f"{cpu / own:.1f}"])


if __name__ == "__main__":
    main()
