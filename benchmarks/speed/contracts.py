"""What the contracts cost: their share of a run's processor time, stage by stage.

python -m benchmarks.speed.contracts --dataset demo [any other flag of the backfill]

A run first loads Great Expectations, once a process; the share is printed with and without it. Processor
time is that of the process from its start, imports included, over all its threads. The run goes into a folder of
its own that is then removed. Let the compiled kernels be there, from a run before: compiling takes minutes.
"""

import tempfile
import time
from collections import defaultdict

from oneclass import data_contracts
from oneclass.data_contracts import lazy_gx
from oneclass.flows import cli
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.pipeline import backfill


class Clock:
    """Stands in for `data_contracts.check` and adds up the processor time that it takes."""

    def __init__(self) -> None:
        self.check = data_contracts.check
        self.loading = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.rules: dict[str, int] = defaultdict(int)

    def __call__(self, connection, stage, parameters=None) -> list[data_contracts.RuleResult]:
        """The check, timed; the first import of Great Expectations apart from it."""
        began = time.process_time()
        lazy_gx.load_great_expectations()
        self.loading += time.process_time() - began  # by the first stage; later ones find it loaded
        began = time.process_time()
        results = self.check(connection, stage, parameters)
        self.seconds[stage] += time.process_time() - began
        self.rules[stage] += len(results)
        return results


def main() -> None:
    name, example = "benchmarks.speed.contracts", "python -m benchmarks.speed.contracts --dataset demo"
    given = cli.build_parser(name, __doc__.splitlines()[0], BackfillParameters, example).parse_args()
    clock = data_contracts.check = Clock()
    with tempfile.TemporaryDirectory() as home:
        given.home = home
        backfill(**cli.parse_parameters(BackfillParameters, given).model_dump())
        total = time.process_time()
    print(f"\n{'stage':10} {'rules':>6} {'CPU s':>8} {'of the run':>11}")
    for stage, seconds in clock.seconds.items():
        print(f"{stage:10} {clock.rules[stage]:6} {seconds:8.2f} {seconds / total:11.2%}")
    checked = sum(clock.seconds.values())
    everything = checked + clock.loading
    print(f"{'all':10} {sum(clock.rules.values()):6} {checked:8.2f} {checked / total:11.2%}")
    print(
        f"loading Great Expectations once: {clock.loading:.2f} s; with it {everything:.2f} s, {everything / total:.2%}"
    )
    print(f"the run: {total:.2f} s of processor time")


if __name__ == "__main__":
    main()
