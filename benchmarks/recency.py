"""What a weight by the order of likes does to the item-item models: their `recency_exponent`, chosen on validation.

    python -m benchmarks.recency --root ../shared/data [--logs gowalla ml-1m] [--models mrf_sparse] [--judges 10000]

A log lies in ROOT/NAME; one that is absent is passed over. Gowalla is its given split, judged by recall of all@20 and
nDCG@20, its validation part the ends of the lines of train.txt; of the others what came from a day on is to be found
(next_events), by recall@20 and nDCG@100, the validation part being the last days before. Settings are those of the data
set's file where it has some, else the defaults. A model is fitted once for each part, for the exponent changes no fit. On
at most `--judges` validation users every exponent is tried; that with the best metric of the protocol's searches is then
judged once on all test users, beside 0. Differences are to the exponent 0, paired over the users, with their standard
errors. Lists of given splits do not use the order of likes, so that a row with it is none of theirs.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.bayesian_models import prepared
from benchmarks.graph_filter import sample
from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from models.base import Model
from models.catalogue import MODELS
from models.evaluation.metrics import compare, mean
from tasks.evaluate.ranks import rank
from tasks.protocols import PROTOCOLS
from tasks.stores import matrices
from tasks.stores.matrices import Part
from tasks.tuning import validation

LOGS = {
    "gowalla": ("given", ("train.txt", "test.txt")),
    "ml-1m": ("next_events", ("ratings_ge4.dat",)),
    "ml-100k": ("next_events", ("u.data",)),
    "ml-latest-small": ("next_events", ("ratings.csv",)),
}
READ_ORDER = ("mrf_sparse", "mrf_dense", "slim", "graph_filter")
TRIED = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


def settled(name: str, options: argparse.Namespace, folder: Path) -> RunSettings:
    """The settings of a run that keeps the order of likes."""
    protocol, names = LOGS[name]
    files = [str(options.root / name / file) for file in names]
    given = {"split_files": files} if protocol == "given" else {"source": files}
    parameters = Backfill(
        dataset=name,
        home=str(folder / name),
        **given,
        protocols=[protocol],
        settings={"split.validation": "line_end", "split.order": True},
        seed=options.seed,
        threads=options.threads,
    )
    return resolve(parameters)


def judged(model: Model, part: Part, exponents: list[float], metrics: list[str]) -> dict[float, list[np.ndarray]]:
    """Each metric of every user, by exponent."""
    found = {}
    for exponent in exponents:
        model.params = model.params.model_copy(update={"recency_exponent": exponent})
        of_users = rank(model, "score", part).of_users
        found[exponent] = [of_users[metric] for metric in metrics]
    return found


def print_rows(model: str, what: str, found: dict[float, list[np.ndarray]]) -> None:
    for exponent, of_exponent in found.items():
        cells = [model, what, f"{exponent:g}"]
        for values, at_zero in zip(of_exponent, found[0.0], strict=True):
            cells.append(f"{mean(values).value:.4f} ± {mean(values).standard_error:.4f}")
            paired = compare(values, at_zero)
            cells.append(f"{paired.difference:+.4f} ± {paired.standard_error:.4f}" if exponent else "")
        print(f"| {' | '.join(cells)} |", flush=True)


def print_log(name: str, options: argparse.Namespace, folder: Path) -> None:
    """The table of one log."""
    protocol, _ = LOGS[name]
    run = settled(name, options, folder)
    split = prepared(run)[protocol]
    cut = validation(run.home, protocol, matrices.write(run.home, split), options.seed)
    judges, test = sample(cut.part, options.judges, options.seed), split.parts["test"]
    recall, ndcg = ("recall_of_all@20", "ndcg@20") if protocol == "given" else ("recall@20", "ndcg@100")
    print(f"\n{name}, {protocol}: validation on {cut.train.nnz:,} edges, {len(judges.users):,} of {cut.users:,} users;")
    print(f"test on {split.train.nnz:,} edges, {len(test.users):,} users\n")
    print(f"| model | part | p | {recall} | to p = 0 | {ndcg} | to p = 0 |\n|---|---|---|---|---|---|---|", flush=True)
    place = [recall, ndcg].index(PROTOCOLS[protocol].tuned_by)
    for kind in options.models:
        settings = {} if options.defaults else run.dataset.models.get(kind, {})

        def fitted(train: csr_matrix, kind: str = kind, settings: dict = settings) -> Model:
            chosen = MODELS[kind].Settings(**settings)
            return MODELS[kind](chosen, seed=options.seed, threads=options.threads).fit(train[:])

        tried = judged(fitted(cut.train), judges, [0.0, *options.exponents], [recall, ndcg])
        print_rows(kind, "validation", tried)
        if options.without_test:
            continue
        best = max(tried, key=lambda exponent: tried[exponent][place].mean())
        exponents = [0.0, best] if best else [0.0]
        print_rows(kind, "test", judged(fitted(split.train), test, exponents, [recall, ndcg]))


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--logs", nargs="+", choices=list(LOGS), default=list(LOGS))
    parser.add_argument("--models", nargs="+", choices=READ_ORDER, default=["mrf_sparse"])
    parser.add_argument("--defaults", action="store_true", help="not the settings of the data set's file")
    parser.add_argument("--without-test", action="store_true", help="the validation part alone")
    parser.add_argument("--exponents", nargs="+", type=float, default=list(TRIED), help="above 0")
    parser.add_argument("--judges", type=int, default=10_000, help="validation users")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.logs:
        lacking = [file for file in LOGS[name][1] if not (options.root / name / file).is_file()]
        if lacking:
            print(f"{name}: passed over, for {options.root / name} has no {' and no '.join(lacking)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            print_log(name, options, Path(folder))


if __name__ == "__main__":
    main()
