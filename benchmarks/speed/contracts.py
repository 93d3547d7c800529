"""Measure the contracts' share of a run's CPU time, stage by stage.

    python -m benchmarks.speed.contracts --dataset demo [any other flag of the backfill]

A run first loads Great Expectations, once a process; the share is printed with and without it. CPU time is that of the
process from its start, imports included, over all its threads. The run has a temporary home. Compile the kernels by a
run before, which takes minutes.
"""

import tempfile
import time
from collections import defaultdict

from oneclass import data_contracts
from oneclass.data_contracts import lazy_gx
from oneclass.flows import cli
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.pipeline import backfill


class CheckTimer:
    """Replace `data_contracts.check` and add up its CPU time."""

    def __init__(self) -> None:
        self.check = data_contracts.check
        self.loading = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.rules: dict[str, int] = defaultdict(int)

    def __call__(self, connection, stage, *more) -> list[data_contracts.RuleResult]:
        """Check a stage's contracts; the first import of Great Expectations is timed apart."""
        began = time.process_time()
        lazy_gx.load_great_expectations()
        self.loading += time.process_time() - began
        began = time.process_time()
        results = self.check(connection, stage, *more)
        self.seconds[stage] += time.process_time() - began
        self.rules[stage] += len(results)
        return results


def main() -> None:
    name, example = "benchmarks.speed.contracts", "python -m benchmarks.speed.contracts --dataset demo"
    options = cli.build_parser(name, __doc__.splitlines()[0], BackfillParameters, example).parse_args()
    timer = data_contracts.check = CheckTimer()
    with tempfile.TemporaryDirectory() as home:
        options.home = home
        backfill(**cli.parse_parameters(BackfillParameters, options).model_dump())
        total = time.process_time()
    print(f"\n{'stage':10} {'rules':>6} {'CPU s':>8} {'of the run':>11}")
    for stage, seconds in timer.seconds.items():
        print(f"{stage:10} {timer.rules[stage]:6} {seconds:8.2f} {seconds / total:11.2%}")
    checks = sum(timer.seconds.values())
    with_loading = checks + timer.loading
    print(f"{'all':10} {sum(timer.rules.values()):6} {checks:8.2f} {checks / total:11.2%}")
    print(
        f"loading Great Expectations once: {timer.loading:.2f} s; "
        f"checks with it {with_loading:.2f} s, {with_loading / total:.2%}"
    )
    print(f"the run: {total:.2f} s of CPU time")


if __name__ == "__main__":
    main()
