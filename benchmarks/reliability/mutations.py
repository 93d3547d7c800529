"""Mutation testing: change one operator or constant of a package at a time, and see whether its tests fail.

    python -m pip install cosmic-ray==8.7.0 pytest-cov==7.0.0
    python -m benchmarks.reliability.mutations [--packages publish tuning ingest stores] [--sample 25] [--seed 1]

Draws positions of a package of `tasks/` that Cosmic Ray can mutate and one mutation at each: a comparison, a number, a
truth value, `and`, `or`, `not`, `+`, `-`, `*`, `/`, a loop, an exception. The fast tests of the package run once to
learn which lines each executes. On a mutant run those that execute its line; for a line that is executed at import,
those that execute any line of the module. A mutant that survives is printed with its line. The score is the share
killed, with its 95 % interval (Wilson); tests of other packages may kill more, and some mutants are equivalent to the
original.

The files are changed in place and restored, so `tasks/` must have no changes; if the command is killed, restore them
with Git.
"""

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy.stats import binomtest

TASKS = Path(__file__).resolve().parents[2] / "tasks"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
OPERATORS = re.compile(
    r"core/(ReplaceComparisonOperator_\w+|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul)|NumberReplacer"
    r"|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|AddNot|ReplaceUnaryOperator_Delete_Not"
    r"|ZeroIterationForLoop|ExceptionReplacer)"
)


def draw_mutations(package: str, sample: int, seed: int) -> list:
    """Draw mutations at different positions of a package, each position with equal probability."""
    from cosmic_ray.commands.init import init
    from cosmic_ray.work_db import WorkDB, use_db

    with tempfile.TemporaryDirectory() as folder, use_db(f"{folder}/session.sqlite", WorkDB.Mode.create) as session:
        init(sorted((TASKS / package).rglob("*.py")), session, {})
        positions: dict[tuple, list] = {}
        for item in session.work_items:
            [mutation] = item.mutations
            if OPERATORS.fullmatch(mutation.operator_name):
                positions.setdefault((str(mutation.module_path), mutation.start_pos), []).append(mutation)
    generator = random.Random(seed)
    chosen = generator.sample(sorted(positions), min(sample, len(positions)))
    by_operator = (sorted(positions[position], key=lambda mutation: mutation.operator_name) for position in chosen)
    return [generator.choice(mutations) for mutations in by_operator]


def map_tests(package: str, folder: str) -> dict[Path, dict[int, set[str]]]:
    """Map each line of a package's modules to the test functions that execute it; none for lines executed at import."""
    from coverage import CoverageData

    with tempfile.TemporaryDirectory() as temporary:
        options = [f"--cov={TASKS / package}", "--cov-context=test", "--cov-report="]
        environment = {**os.environ, "COVERAGE_FILE": f"{temporary}/coverage"}
        subprocess.run(
            [*PYTEST, *options, folder], check=True, stdout=subprocess.DEVNULL, cwd=TASKS.parent, env=environment
        )
        data = CoverageData(f"{temporary}/coverage")
        data.read()
        lines = {Path(file): data.contexts_by_lineno(file) for file in data.measured_files()}
    # A context is a test, with its parameters and its phase: setup, run or teardown.
    return {
        file: {
            line: {re.split(r"[\[|]", context)[0] for context in contexts} - {""}
            for line, contexts in contexts_by_line.items()
        }
        for file, contexts_by_line in lines.items()
    }


def count_killed(package: str, sample: int, seed: int) -> tuple[int, int]:
    """Run the tests of each mutant's line and print the survivors; returns the numbers of killed and of all mutants."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import TestOutcome

    started, folder = time.perf_counter(), str(TASKS.parent / "tests" / "tasks" / package)
    executed = map_tests(package, folder)
    max_seconds = 60 + 5 * (time.perf_counter() - started)
    killed, mutations = 0, draw_mutations(package, sample, seed)
    for mutation in mutations:
        lines = executed.get(mutation.module_path.resolve(), {})
        # Coverage records the first line of a statement of several.
        line = max((line for line in lines if line <= mutation.start_pos[0]), default=0)
        tests = sorted(lines.get(line) or set().union(*lines.values()))
        result = mutate_and_test([mutation], shlex.join([*PYTEST, "-x", *(tests or [folder])]), max_seconds)
        if result.test_outcome != TestOutcome.SURVIVED:
            killed += 1
            continue
        changed = [line for line in (result.diff or "").splitlines() if re.match(r"[+-](?![+-])", line)]
        position = f"{mutation.module_path.relative_to(TASKS.parent)}:{mutation.start_pos[0]}"
        print(f"  survived: {position}  {'  '.join(' '.join(line.split()) for line in changed)}", flush=True)
    return killed, len(mutations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="+", default=["publish", "tuning", "ingest", "stores"])
    parser.add_argument("--sample", type=int, default=25, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if subprocess.run(["git", "status", "--porcelain", str(TASKS)], check=True, capture_output=True).stdout:
        parser.error(f"{TASKS} has changes that a killed run would mix with a mutation: commit them first")
    for package in options.packages:
        killed, mutants = count_killed(package, options.sample, options.seed)
        low, high = binomtest(killed, mutants).proportion_ci(method="wilson")
        print(f"{package}: {killed} of {mutants} killed, {killed / mutants:.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
