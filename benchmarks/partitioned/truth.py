"""One machine's tables by the stages themselves, and the partitions' tables held against them."""

import time
from pathlib import Path

import duckdb

import sql
from benchmarks.partitioned.layout import TABLES, Layout
from benchmarks.partitioned.steps import RUN, hand_on
from tasks import datasets
from tasks.binarize import BinarizeSettings, binarize
from tasks.ingest import ingest
from tasks.split import SplitSettings, split

DIFFERENCE = "select count(*) from (from read_parquet('{own}') except all from read_parquet('{other}'))"


def one_machine(layout: Layout, sources: list[Path]) -> dict[str, float]:
    """CPU seconds of each stage, on one thread, with its contracts; split makes the matrices too."""
    home = layout.home("one")
    binarizing = BinarizeSettings(threshold=layout.threshold, min_user_edges=layout.min_user_edges)
    splitting = SplitSettings(held_out_share=layout.held_out_share)
    protocols = ["strong_generalization", "leave_one_out"]
    stages = {
        "ingest": lambda: ingest(home, datasets.load("demo", layout.folder), sources, RUN),
        "binarize": lambda: binarize(home, binarizing, RUN),
        "split": lambda: split(home, splitting, RUN, protocols=protocols, seed=layout.seed),
    }
    took = {}
    for name, stage in stages.items():
        began = time.process_time()
        stage()
        took[name] = time.process_time() - began
    hand_on(layout, "one", "one")
    return took


def compared(layout: Layout) -> dict[str, tuple[int, int, bool]]:
    """Table -> rows on one machine, rows that only one of both has, and whether the digests of the rows agree."""
    return {table: difference(layout.file(table, "one"), layout.file(table, "[0-9]*")) for table in TABLES}


def difference(one: str, parts: str) -> tuple[int, int, bool]:
    """Rows of the first, rows that only one of both has, each as often as it is there, and whether the digests agree."""
    (rows,) = duckdb.execute(f"select count(*) from read_parquet('{one}')").fetchone()
    apart = 0
    for own, other in ((one, parts), (parts, one)):
        apart += duckdb.execute(DIFFERENCE.format(own=own, other=other)).fetchone()[0]
    digests = {
        duckdb.execute(sql.statement("runs/table_digest", table=f"read_parquet('{file}')")).fetchone()[0]
        for file in (one, parts)
    }
    return rows, apart, len(digests) == 1
