"""Whether models come in the same order on a validation part as on the test part, by how the part is cut.

    python -m benchmarks.validation_cut --root ../shared/data [--logs gowalla] [--users 10000] [--judges 3000]
    python -m benchmarks.validation_cut --root ../shared/data --without-test

A log lies in ROOT/NAME as train.txt and test.txt, adjacency lists; one that is absent is passed over. First comes how far
items drift along the lines of train.txt, as they are, shuffled three times, and sorted by id. Then every model is
fitted three times: on what is left of the training edges when the ends of the lines are cut off
(split.validation = line_end), on what is left when as many as before are drawn from every line (random), and on all of
them, for the test part. One row a model and settings, which are the defaults, and those of the data set's file where it has
some (*): nDCG@20 of at most `--judges` users, drawn by the seed, its standard error, and the row's place among the rows;
below, how the order on either cut agrees with that on the test part. Nothing is chosen by the test part.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import kendalltau, rankdata, spearmanr

from benchmarks.bayesian_models import prepared
from benchmarks.graph_filter import sample
from flows.parameters import Backfill
from flows.settings import resolve
from models.catalogue import MODELS
from models.evaluation.line_drift import line_drift
from models.evaluation.metrics import Mean
from tasks import datasets
from tasks.stores import matrices
from tasks.stores.matrices import Part
from tasks.tuning import validation
from tasks.tuning.trial import judge

METRIC, TEST, CUTS = "ndcg@20", "test", ("line_end", "random")
TRIED = ("popularity", "bpr_uniform", "mrf_sparse", "slim", "wmf", "graph_filter")


def of_some_users(file: Path, users: int | None, folder: Path) -> Path:
    """The file, or a copy with the lines of so many users, spread evenly over all of them."""
    if users is None:
        return file
    lines = file.read_text().splitlines()
    chosen = np.arange(min(users, len(lines))) * len(lines) // min(users, len(lines))
    copy = folder / file.name
    copy.write_text("".join(lines[at] + "\n" for at in chosen))
    return copy


def parts(name: str, options: argparse.Namespace, folder: Path) -> dict[str, tuple[csr_matrix, Part]]:
    """By cut: what is fitted on, and what is to be found; by the pipeline's own stages."""
    files = [
        str(of_some_users(options.root / name / file, options.users, folder)) for file in ("train.txt", "test.txt")
    ]
    found = {}
    for cut in CUTS:
        parameters = Backfill(
            dataset=name,
            home=str(folder / "home"),
            split_files=files,
            protocols=["given"],
            settings={"split.validation": cut},
            seed=options.seed,
            threads=options.threads,
        )
        run = resolve(parameters)
        split = prepared(run)["given"]
        judged = validation(run.home, "given", matrices.write(run.home, split), options.seed)
        found[cut] = judged.train, judged.part
    if not options.without_test:
        found[TEST] = split.train, split.parts["test"]
    return {cut: (train[:], sample(part, options.judges, options.seed)) for cut, (train, part) in found.items()}


def print_drift(name: str, file: Path, seed: int) -> None:
    """z of the lines as they are, shuffled, and sorted; one line a user, items as numbers, as LightGCN's files have them."""
    generator = np.random.default_rng(seed)
    lines = [np.array(line.split()[1:], dtype=np.int64) for line in file.read_text().splitlines()]
    starts = np.concatenate([[0], np.cumsum([len(line) for line in lines])])
    found = {
        "as they are": lines,
        **{f"shuffled, {n}": [generator.permutation(one) for one in lines] for n in (1, 2, 3)},
    }
    for words, ordered in (found | {"sorted": [np.sort(line) for line in lines]}).items():
        places = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
        edges = csr_matrix((places + 1.0, np.concatenate(ordered), starts))
        edges.sort_indices()
        print(f"{name}, lines {words}: z = {line_drift(edges, edges.data)[0]:.1f}", flush=True)


def rows(name: str, models: list[str], root: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is fitted: the model and its settings, by the row's name."""
    tuned = datasets.load(name, root).models
    return {one: (one, {}) for one in models} | {f"{one} *": (one, tuned[one]) for one in models if one in tuned}


def fitted(model: str, settings: dict[str, Any], train: csr_matrix, part: Part, options: argparse.Namespace) -> Mean:
    """The model's figure on a part."""
    began, kind = time.perf_counter(), MODELS[model]
    made = kind(kind.Settings(**settings), seed=options.seed, threads=options.threads).fit(train)
    mean, _ = judge(made, part, METRIC)
    print(f"    {model} {settings or ''}: {mean.value:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return mean


def print_table(found: dict[str, dict[str, Mean]]) -> None:
    """Figures with the places of the models, and how far the orders agree."""
    values = {cut: np.array([mean.value for mean in of_cut.values()]) for cut, of_cut in found.items()}
    places = {cut: rankdata(-of_cut).astype(int) for cut, of_cut in values.items()}
    print(f"\n| model | {' | '.join(found)} |\n|---{'|---' * len(found)}|")
    for at, model in enumerate(found[CUTS[0]]):
        means = {cut: of_cut[model] for cut, of_cut in found.items()}
        cells = [f"{mean.value:.4f} ± {mean.standard_error:.4f} ({places[cut][at]})" for cut, mean in means.items()]
        print(f"| {model} | {' | '.join(cells)} |")
    starred = np.array([row.endswith("*") for row in found[CUTS[0]]])
    for cut in CUTS if TEST in found else ():
        for which, chosen in {"all rows": starred | True, "defaults": ~starred, "rows with *": starred}.items():
            pair = values[cut][chosen], values[TEST][chosen]
            tau, rho = kendalltau(*pair).statistic, spearmanr(*pair).statistic
            print(f"{cut} and test, {which}: Kendall's tau {tau:.2f}, Spearman's rho {rho:.2f}")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--logs", nargs="+", default=["gowalla"])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=TRIED)
    parser.add_argument("--users", type=int, help="users, spread evenly over the lines; all by default")
    parser.add_argument("--judges", type=int, default=3000, help="users that judge")
    parser.add_argument("--without-test", action="store_true", help="fit on the two cuts alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.logs:
        if (file := options.root / name / "train.txt").is_file():
            print_drift(name, file, options.seed)
        lacking = [file for file in ("train.txt", "test.txt") if not (options.root / name / file).is_file()]
        if lacking:
            print(f"{name}: passed over, for {options.root / name} has no {' and no '.join(lacking)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            of_cuts = parts(name, options, Path(folder))
            found = {}
            for cut, (train, part) in of_cuts.items():
                print(
                    f"{name}, {cut}: {train.nnz:,} edges, {part.targets.nnz:,} to be found of {len(part.users):,} users"
                )
                tried = rows(name, options.models, options.root)
                found[cut] = {row: fitted(*of_row, train, part, options) for row, of_row in tried.items()}
            print_table(found)


if __name__ == "__main__":
    main()
