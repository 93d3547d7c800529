"""A year of small nights with planted faults: what the rules of a night's figures catch, and how often they are wrong.

    python -m benchmarks.reliability.simulated_year [--nights 365] [--seed 1] [--events 1500] [--each 4] [--keep FOLDER]

A shop (`benchmarks/reliability/year.py`) puts a log into the landing folder every night; from the 22nd on some have a
fault, each kind `--each` times. Ingest, binarize and the exponents of diagnose run on it in
a home of their own, with their contracts; bootstrap, hidden graphs and models are left out. A night that is taken back
as beyond belief loses its file, as if someone had moved it away. Prints, for each kind of fault, how many nights had
it, how many were warned of or taken back, and by which rules; then every clean night that was warned of, with the
figures; the share of clean nights that were; and the seconds of a night, by stage. Nights without enough nights before
them count as neither. Where FOLDER holds such a year of the same seed already, its nights' figures are judged anew, by
the limits that the contracts have now.
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

from benchmarks.reliability.year import FIRST_DAY, KINDS, Shop, night_of
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

FIRST_FAULT, APART = 21, 3  # nights before the first fault, and from one to the next at the least
TABLES = ("operations.nights", "diagnostics.nightly_exponents")
SHOP = Dataset(name="shop", title="a simulated shop", files=("*.csv",))
LIKES = BinarizeSettings(threshold=4)


@dataclass
class Night:
    """One night: the fault that its log had, if any, and the rules that it broke, each with the figures that did."""

    number: int
    fault: str | None
    broken: dict[str, list[str]] = field(default_factory=dict)
    taken_back: bool = False

    def note(self, results: list[RuleResult]) -> None:
        """Add the rules that do not hold."""
        for one in results:
            if not one.success:
                self.broken[one.rule] = list(map(_figure, one.samples))
                self.taken_back |= one.severity == "error"


def planted(length: int, each: int, random: np.random.Generator) -> dict[int, str]:
    """The nights that have a fault, and which."""
    faults = random.permutation([kind for kind in KINDS for _ in range(each)])
    room = length - FIRST_FAULT - APART * len(faults)
    if room < 0:
        raise SystemExit(f"{length} nights have no room for {len(faults)} faults, {APART} nights apart: lower --each.")
    places = np.sort(random.integers(0, room + 1, len(faults))) + FIRST_FAULT + APART * np.arange(len(faults))
    return dict(zip(places.tolist(), map(str, faults), strict=True))


def simulate(home: Home, length: int, each: int, seed: int, events: int) -> tuple[list[Night], dict[str, float]]:
    """Every night, and the processor time of each stage in seconds."""
    random = np.random.default_rng([seed, 1])
    shop, faults = Shop(seed, events), planted(length, each, random)
    seconds: dict[str, float] = defaultdict(float)
    found = []
    home.landing.mkdir(parents=True)
    for number in range(length):
        day = FIRST_DAY + timedelta(days=number)
        log = shop.day(day)
        if fault := faults.get(number):
            log = KINDS[fault](log, random)
        (home.landing / f"{day}.csv").write_text(log.csv(broken=random.poisson(len(log.user) * 0.001)))
        with patch.object(runs, "_utc_now", return_value=night_of(day)):  # the clock that distinguishes nights
            found.append(run(home, Night(number, fault), seconds))
    return found, seconds


def run(home: Home, night: Night, seconds: dict[str, float]) -> Night:
    """One night over the landing folder."""
    run_id = f"night {night.number}"
    try:
        with runs.record_run(home, run_id, "simulated-year", {}):
            began = time.process_time()
            ingest(home, SHOP, [], run_id, IngestSettings(keep_files="remove"))
            ingested = time.process_time()
            binarize(home, LIKES, run_id)
            binarized = time.process_time()
            night.note(exponents(home, run_id))
            ended = time.process_time()
        for stage, took in (
            ("ingest", ingested - began),
            ("binarize", binarized - ingested),
            ("exponents", ended - binarized),
        ):
            seconds[stage] += took
    except ContractBroken:
        night.taken_back = True
        for file in home.landing.iterdir():
            file.unlink()
    with warehouse.open_warehouse(home, read_only=True) as connection:
        asked = (
            "select rule, samples from operations.contract_results where not success and (run_id, contract) = (?, ?)"
        )
        for rule, samples in connection.execute(asked, [run_id, TABLES[0]]).fetchall():
            night.broken[rule] = [_figure(row) for row in json.loads(samples)]
    return night


def judged_anew(home: Home, length: int, each: int, seed: int) -> list[Night]:
    """The nights that a home has, by the rules as they are now."""
    faults = planted(length, each, np.random.default_rng([seed, 1]))
    contracts = [one for one in load() if one.table in TABLES]
    found = []
    with warehouse.open_warehouse(home, read_only=True) as connection:
        (there,) = connection.execute("select count(*) from operations.runs").fetchone()
        for number in range(there):
            found.append(Night(number, faults.get(number)))
            found[-1].note(check_contracts(connection, contracts, {"run_id": f"night {number}"}))
    return found


def exponents(home: Home, run_id: str) -> list[RuleResult]:
    """What diagnose does for a night's figures, and what their contract finds."""
    with warehouse.open_warehouse(home) as connection:
        rewrite_diagnostics(connection, seed=0, replicates=0)
        anomalies.record_exponents(connection, run_id)
        contracts = [one for one in load() if one.table == TABLES[1]]
        return check_contracts(connection, contracts, {"run_id": run_id})


def report(found: list[Night], seconds: dict[str, float]) -> None:
    """Print the faults caught, the false warnings and the seconds of a night."""
    print(f"{'fault':36} {'nights':>6} {'caught':>6} {'back':>5}  by")
    for kind in KINDS:
        of_kind = [night for night in found if night.fault == kind]
        caught = [night for night in of_kind if night.broken]
        rules = Counter(rule for night in caught for rule in night.broken)
        by = ", ".join(f"{rule} {times}" for rule, times in rules.most_common())
        print(f"{kind:36} {len(of_kind):6} {len(caught):6} {sum(night.taken_back for night in of_kind):5}  {by}")
    clean = [night for night in found if not night.fault and night.number >= anomalies.MIN_BASELINE_BATCHES]
    wrong = [night for night in clean if night.broken]
    for night in wrong:
        warned = "; ".join(figure for figures in night.broken.values() for figure in figures)
        print(f"false warning: night {night.number}: {warned}")
    print(f"{len(wrong)} of {len(clean)} clean nights were warned of: {len(wrong) / len(clean):.2%}")
    if seconds:
        each = ", ".join(f"{stage} {took / len(found):.2f}" for stage, took in seconds.items())
        print(f"processor seconds of a night: {each}")


def _figure(row: dict) -> str:
    usually = ["" if row.get(end) is None else f"{row[end]:.4g}" for end in ("usual_from", "usual_to")]
    return f"{row['figure']} {row['value']:.4g} (usually {' to '.join(usually)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=1500, help="of an ordinary Monday at the beginning")
    parser.add_argument("--each", type=int, default=4, help="nights with each kind of fault")
    parser.add_argument("--keep", type=Path, help="a folder for the home, which is removed otherwise")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(given.keep or Path(folder), "shop", Limits(threads=1, memory=1 << 30))
        if home.warehouse.exists():
            report(judged_anew(home, given.nights, given.each, given.seed), {})
        else:
            report(*simulate(home, given.nights, given.each, given.seed, given.events))


if __name__ == "__main__":
    main()
