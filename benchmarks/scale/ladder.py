"""Every stage and model on logs of growing size, beside the machine's own limit for that work and other libraries.

    python -m benchmarks.scale.ladder [--edges 1e5 1e6 1e7 5.7e7] [--items 2000 18000 41000] [--runs 3] [--home DIR]
    python -m benchmarks.scale.ladder --against implicit irspack hpfrec fastslim kindling
    python -m benchmarks.scale.ladder --shapes one_user_all_items million_items three_likes_each equal_degrees --scale
    0.01

Prints one Markdown table. A log is made by the random-graph paper's generative story, with 40 likes a user, and goes
through the stages as a run makes them, each in a process of its own, under strong_generalization; models have the data
set's own settings, libraries those of `benchmarks/accuracy/competitors.py`, which were tuned on another log. A row has
wall and CPU seconds, the peak of resident memory, the interpreter's included, the limit of that work and the CPU
seconds that it comes to (`benchmarks/rungs/`: DuckDB's bare `read_csv` and `create table as` for what works in DuckDB,
else bytes or operations at the rates of copy, random gather, SGEMM and Cholesky, measured in the same run), the ratio
to it, the slope of log CPU seconds over log edges from the next smaller log with as many items, and nDCG@100 on the
log's own test users. A library's limit is our model of its kind. What fails, or is not done after `--at-most` seconds,
has a row that says why. `--shapes` takes worst-shaped logs instead: a user with every item, a million items, ten
million users with three likes each, all degrees equal; `--scale` multiplies their users and items.

By `--runs` the median, with the least and the most in brackets. On a busy machine compare CPU seconds and ratios only.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.accuracy.competitors import LIBRARIES
from benchmarks.scale.workloads import apart, limits, logs, models, stages, table
from benchmarks.scale.workloads.apart import Took
from benchmarks.scale.workloads.logs import Rung
from benchmarks.scale.workloads.table import Rows
from oneclass.flows.parameters import BackfillParameters
from oneclass.models.registry import MODELS

DEFAULT_MODELS = [
    "popularity", "bpr_uniform", "bpr_popularity", "mrf_dense", "mrf_sparse", "slim", "item_knn", "sansa",
    "wmf", "graph_filter", "random_graph", "paired_symbols", "hpf",
]  # fmt: skip
ALL_STAGES = [*stages.BEFORE_FITS, *stages.AFTER_FITS]


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.ladder", description=__doc__, formatter_class=layout
    )
    parser.add_argument("--edges", nargs="+", type=float, default=[1e5, 1e6])
    parser.add_argument("--items", nargs="+", type=int, default=[2000])
    parser.add_argument("--shapes", nargs="+", choices=logs.SHAPES, default=[], metavar="SHAPE")
    parser.add_argument("--scale", type=float, default=1.0, help="of the worst-shaped logs")
    parser.add_argument("--models", nargs="*", choices=[*MODELS], default=DEFAULT_MODELS, metavar="NAME")
    parser.add_argument("--stages", nargs="*", choices=ALL_STAGES, default=ALL_STAGES, metavar="NAME")
    parser.add_argument("--against", nargs="+", default=[], metavar="LIBRARY", help="implicit, irspack, hpfrec, ...")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--at-most", type=float, default=600, help="seconds of a row, after which it is stopped")
    parser.add_argument("--home", type=Path, help="where the logs are kept; by default they go at the end")
    parser.add_argument("--in-process", action="store_true", help="no processes, no peaks of one's own: to debug")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.against if not models.names_of(name)]:
        parser.error(f"--against {unknown[0]}: known are {', '.join(dict.fromkeys(map(_library, LIBRARIES)))}")
    return given


def _library(name: str) -> str:
    return name.split("_")[0]


def rungs(given: argparse.Namespace) -> list[Rung]:
    """The logs, those with as many items one after the other and growing."""
    if given.shapes:
        return [logs.of_shape(name, given.scale) for name in given.shapes]
    return [logs.of_size(round(edges), items) for items in sorted(given.items) for edges in sorted(given.edges)]


class Ladder:
    """All runs of one command.

    Attributes:
        rates: of the machine.
    """

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self.folder = given, folder
        size = 1 << 20 if given.in_process else 1 << 25
        (found,) = self.took(limits.rates, size)
        if found.why:
            sys.exit(f"the machine's rates: {found.why}")
        self.rates: limits.Rates = found.found["rates"]

    def took(self, work, *arguments) -> list[Took]:
        return apart.run(work, *arguments, seconds=self.given.at_most, inside=self.given.in_process)

    def rows(self, rung: Rung) -> Rows:
        """What each run of a rung took, by the table's row."""
        found: Rows = {}
        folder = self.folder / rung.name.replace(", ", "-").replace(",", "").replace(" ", "")
        (log,) = self.took(_written, rung, folder)
        if log.why:
            return {"the log": [log]}
        for number in range(1, self.given.runs + 1):
            home = folder / "run"
            shutil.rmtree(home, ignore_errors=True)
            for one in self.run(self._parameters(rung, log.found["files"], home)):
                print(f"{rung.name}, run {number}: {one.what}: {one.why or f'{one.cpu:.2f} CPU s'}", file=sys.stderr)
                found.setdefault(one.what, []).append(one)
            shutil.rmtree(home, ignore_errors=True)
        return found

    def _parameters(self, rung: Rung, files: list[Path], home: Path) -> BackfillParameters:
        return BackfillParameters(
            dataset=rung.dataset, source=[*map(str, files)], home=str(home), models=self.given.models,
            threads=self.given.threads,
        )  # fmt: skip

    def run(self, parameters: BackfillParameters):
        """The stages and models in a run's order; what came before is handed on."""
        asked, made = self.given.stages, {"digests": {}, "fits": {}, "ndcg": {}}
        for stage in stages.BEFORE_FITS:
            if stage not in asked and stage not in stages.NEEDED:
                continue
            one = self._stage(parameters, stage, made)
            if stage in asked or one.why:
                yield one
            if one.why and stage in stages.NEEDED:
                yield from self._without_arrays(stage)
                return
        digest = made["digests"][stages.PROTOCOL]
        for name in self.given.models:
            took = self.took(models.ours, parameters, name, digest, self.rates)
            yield from _named(took, f"{name}: fit")
            if not took[0].why:
                made["fits"] |= took[0].found["fits"]
                made["ndcg"][name] = took[0].ndcg
                made.setdefault("ours", {})[name] = took
        for library in self.given.against:
            yield from self._library(library, parameters, digest, made.get("ours", {}))
        for stage in stages.AFTER_FITS:
            if stage in asked:
                yield self._stage(parameters, stage, made) if made["fits"] else Took(stage, why="no model was fitted")

    def _stage(self, parameters: BackfillParameters, stage: str, made: stages.Made) -> Took:
        handed = {name: made[name] for name in ("digests", "fits", "ndcg")}
        (one,) = _named(self.took(stages.measure, parameters, stage, handed, self.rates), stage)
        if not one.why and stage in stages.BEFORE_FITS:
            made["digests"] |= one.found.get("digests", {})
        return one

    def _without_arrays(self, stage: str):
        rest = [
            *self.given.models,
            *self.given.against,
            *(one for one in stages.AFTER_FITS if one in self.given.stages),
        ]
        yield from (Took(what, why=f"not run, for {stage} failed") for what in rest)

    def _library(self, library: str, parameters: BackfillParameters, digest: str, ours: dict[str, list[Took]]):
        if not models.installed(library):
            yield Took(library, why="is not installed here")
            return
        for name in models.names_of(library):
            took = self.took(models.beside, parameters, name, digest)
            alike = LIBRARIES[name].ours
            for one, own in zip(took, ours.get(alike, ()), strict=False):
                one.limit, one.limit_cpu = f"our {alike}", own.cpu
            yield from _named(took, f"{name}: fit")


def _written(rung: Rung, folder: Path) -> list[Took]:
    return [Took("the log", found={"files": logs.write(rung, folder)})]


def _named(took: list[Took], what: str) -> list[Took]:
    """Work that failed does not say what it was."""
    for one in took:
        one.what = one.what or what
    return took


def main(arguments: list[str] | None = None) -> None:
    given = read_arguments(arguments)
    with tempfile.TemporaryDirectory() as aside:
        ladder = Ladder(given, (given.home or Path(aside)).resolve())
        print(f"{ladder.rates.describe()}\n\n{table.head()}", flush=True)
        below = None
        for rung in rungs(given):
            rows = ladder.rows(rung)
            if below and (below[0].items != rung.items or below[0].shape != rung.shape or rung.shape):
                below = None
            print("\n".join(table.lines(rung, rows, below)), flush=True)
            below = rung, rows


if __name__ == "__main__":
    main()
