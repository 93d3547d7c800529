"""Simulate a year of small nights with planted faults, and count the faults caught and the false warnings.

    python -m benchmarks.reliability.simulated_year [--nights 365] [--seed 1] [--events 1500] [--each 4]

A shop (`benchmarks/reliability/year.py`) writes a log into the landing folder every night; from the 22nd on some have a
fault, each kind `--each` times. Ingest, binarize and the exponents of diagnose run on it with their contracts, without
bootstrap, hidden graphs and models. The file of a night that the contracts undo is removed, as an operator would.
Prints, for each kind of fault, how many nights had it, were warned of or undone, and by which rules; then every clean
night that was warned of, with its figures, and their share; and the seconds of a night, by stage. The first nights,
which have no baseline, do not count.
"""

import argparse
import json
import logging
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.reliability.year import FAULTS, FIRST_DAY, Shop, compute_run_time
from oneclass.data_contracts import ContractBroken, RuleResult
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import load
from oneclass.tasks import anomalies
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.diagnose import rewrite_diagnostics
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home, Limits

FAULTLESS_NIGHTS, MIN_GAP_NIGHTS = 21, 3  # before the first fault, and from one to the next
BROKEN_LINE_SHARE = 0.001
NIGHTS_TABLE, EXPONENTS_TABLE = "operations.nights", "diagnostics.nightly_exponents"
SHOP = Dataset(name="shop", title="a simulated shop", files=("*.csv",))
LIKES = BinarizeSettings(threshold=4)
FAILED_RULES = "select rule, samples from operations.contract_results where not success and (run_id, contract) = (?, ?)"


@dataclass
class Night:
    """One night: the fault of its log, if any, and the rules that it broke, each with the figures."""

    number: int
    fault: str | None
    broken: dict[str, list[str]] = field(default_factory=dict)
    is_undone: bool = False

    def add_results(self, results: list[RuleResult]) -> None:
        """Add the rules that failed."""
        for one in results:
            if not one.success:
                self.broken[one.rule] = list(map(_format_figure, one.samples))
                self.is_undone |= one.severity == "error"


def draw_faults(nights: int, each: int, generator: np.random.Generator) -> dict[int, str]:
    """Draw the nights with a fault, and its kind."""
    kinds = generator.permutation([kind for kind in FAULTS for _ in range(each)])
    room = nights - FAULTLESS_NIGHTS - MIN_GAP_NIGHTS * len(kinds)
    if room < 0:
        raise SystemExit(
            f"{nights} nights have no room for {len(kinds)} faults, {MIN_GAP_NIGHTS} nights apart: lower --each."
        )
    offsets = np.sort(generator.integers(0, room + 1, len(kinds))) + MIN_GAP_NIGHTS * np.arange(len(kinds))
    return dict(zip((FAULTLESS_NIGHTS + offsets).tolist(), map(str, kinds), strict=True))


def simulate_nights(home: Home, nights: int, each: int, seed: int, events: int) -> tuple[list[Night], dict[str, float]]:
    """Simulate all nights; returns them with the CPU seconds of each stage."""
    generator = np.random.default_rng([seed, 1])
    shop, faults = Shop(seed, events), draw_faults(nights, each, generator)
    seconds: dict[str, float] = defaultdict(float)
    simulated = []
    home.landing.mkdir(parents=True)
    for number in range(nights):
        day = FIRST_DAY + timedelta(days=number)
        log = shop.draw_day(day)
        if fault := faults.get(number):
            log = FAULTS[fault](log, generator)
        broken_lines = generator.poisson(len(log.user) * BROKEN_LINE_SHARE)
        (home.landing / f"{day}.csv").write_text(log.format_csv(broken_lines))
        with patch.object(runs, "_utc_now", return_value=compute_run_time(day)):  # nights differ by this clock
            simulated.append(run_night(home, Night(number, fault), seconds))
    return simulated, seconds


def run_night(home: Home, night: Night, seconds: dict[str, float]) -> Night:
    """Run one night on the landing folder, and add the CPU seconds of its stages."""
    run_id = f"night {night.number}"
    try:
        with runs.record_run(home, run_id, "simulated-year", {}):
            clock = [time.process_time()]
            ingest(home, SHOP, [], run_id, IngestSettings(keep_files="remove"))
            clock.append(time.process_time())
            binarize(home, LIKES, run_id)
            clock.append(time.process_time())
            night.add_results(check_exponents(home, run_id))
            clock.append(time.process_time())
        for stage, cpu in zip(("ingest", "binarize", "exponents"), np.diff(clock), strict=True):
            seconds[stage] += cpu
    except ContractBroken:
        night.is_undone = True
        for file in home.landing.iterdir():
            file.unlink()
    with warehouse.open_warehouse(home, read_only=True) as connection:
        for rule, samples in connection.execute(FAILED_RULES, [run_id, NIGHTS_TABLE]).fetchall():
            night.broken[rule] = [_format_figure(row) for row in json.loads(samples)]
    return night


def check_exponents(home: Home, run_id: str) -> list[RuleResult]:
    """Compute a night's exponents as diagnose does, and check their contract."""
    with warehouse.open_warehouse(home) as connection:
        rewrite_diagnostics(connection, seed=0, replicates=0)
        anomalies.record_exponents(connection, run_id)
        contracts = [one for one in load() if one.table == EXPONENTS_TABLE]
        return check_contracts(connection, contracts, {"run_id": run_id})


def print_report(nights: list[Night], seconds: dict[str, float]) -> None:
    """Print the faults caught, the false warnings and the seconds of a night."""
    print(f"{'fault':36} {'nights':>6} {'caught':>6} {'undone':>6}  by")
    for kind in FAULTS:
        of_kind = [night for night in nights if night.fault == kind]
        caught = [night for night in of_kind if night.broken]
        rules = Counter(rule for night in caught for rule in night.broken)
        by = ", ".join(f"{rule} {times}" for rule, times in rules.most_common())
        print(f"{kind:36} {len(of_kind):6} {len(caught):6} {sum(night.is_undone for night in of_kind):6}  {by}")
    clean = [night for night in nights if not night.fault and night.number >= anomalies.MIN_BASELINE_BATCHES]
    wrong = [night for night in clean if night.broken]
    for night in wrong:
        warnings = "; ".join(figure for figures in night.broken.values() for figure in figures)
        print(f"false warning: night {night.number}: {warnings}")
    print(f"{len(wrong)} of {len(clean)} clean nights were warned of: {len(wrong) / len(clean):.2%}")
    each = ", ".join(f"{stage} {cpu / len(nights):.2f}" for stage, cpu in seconds.items())
    print(f"CPU seconds of a night: {each}")


def _format_figure(row: dict) -> str:
    usual = ["" if row.get(end) is None else f"{row[end]:.4g}" for end in ("usual_from", "usual_to")]
    return f"{row['figure']} {row['value']:.4g} (usually {' to '.join(usual)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=1500, help="of an ordinary Monday at the start")
    parser.add_argument("--each", type=int, default=4, help="nights with each kind of fault")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), "shop", Limits(threads=1, memory=1 << 30))
        print_report(*simulate_nights(home, options.nights, options.each, options.seed, options.events))


if __name__ == "__main__":
    main()
