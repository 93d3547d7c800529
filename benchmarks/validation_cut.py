"""Whether models come in the same order on a validation part as on the test part, by how the part is cut.

    python -m benchmarks.validation_cut --root ../shared/data [--logs gowalla] [--users 10000] [--judges 3000]
    python -m benchmarks.validation_cut --root ../shared/data --without-test

A log lies in ROOT/NAME as train.txt and test.txt, adjacency lists; one that is absent is passed over. Every model is
fitted three times: on what is left of the training edges when the ends of the lines are cut off
(split.validation = line_end), on what is left when as many as before are drawn from every line (random), and on all of
them, for the test part. One row a model: nDCG@20 of at most `--judges` users, drawn by the seed, its standard error, and
the model's place among the models; below, how the order on either cut agrees with that on the test part. Settings are
the defaults, which were chosen on no cut of these logs, but for those of SETTINGS, which make fits shorter. Nothing is
chosen by the test part.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import kendalltau, rankdata, spearmanr

from benchmarks.bayesian_models import prepared
from benchmarks.graph_filter import sample
from flows.parameters import Backfill
from flows.settings import resolve
from models.catalogue import MODELS
from models.evaluation.metrics import Mean
from tasks.stores import matrices
from tasks.stores.matrices import Part
from tasks.tuning import validation
from tasks.tuning.trial import judge

METRIC, TEST, CUTS = "ndcg@20", "test", ("line_end", "random")
TRIED = ("popularity", "bpr_uniform", "mrf_sparse", "slim", "wmf", "graph_filter")
SETTINGS = {"wmf": {"factors": 64}, "bpr_uniform": {"epochs": 60}}


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
    files = [str(of_some_users(options.root / name / file, options.users, folder)) for file in ("train.txt", "test.txt")]
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


def fitted(name: str, train: csr_matrix, part: Part, options: argparse.Namespace) -> Mean:
    """The model's figure on a part; seconds go to the log."""
    began = time.perf_counter()
    kind = MODELS[name]
    model = kind(kind.Settings(**SETTINGS.get(name, {})), seed=options.seed, threads=options.threads).fit(train)
    mean, _ = judge(model, part, METRIC)
    print(f"    {name}: {train.nnz:,} edges, {mean.value:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return mean


def print_table(found: dict[str, dict[str, Mean]]) -> None:
    """Figures with the places of the models, and how far the orders agree."""
    values = {cut: np.array([mean.value for mean in of_cut.values()]) for cut, of_cut in found.items()}
    places = {cut: rankdata(-of_cut).astype(int) for cut, of_cut in values.items()}
    print(f"\n| model | {' | '.join(found)} |\n|---{'|---' * len(found)}|")
    for at, model in enumerate(found[CUTS[0]]):
        cells = [f"{of_cut[model].value:.4f} ± {of_cut[model].standard_error:.4f} ({places[cut][at]})" for cut, of_cut in found.items()]
        print(f"| {model} | {' | '.join(cells)} |")
    for cut in CUTS if TEST in found else ():
        tau, rho = kendalltau(values[cut], values[TEST]).statistic, spearmanr(values[cut], values[TEST]).statistic
        print(f"{cut} and test: Kendall's tau {tau:.2f}, Spearman's rho {rho:.2f}")


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
        lacking = [file for file in ("train.txt", "test.txt") if not (options.root / name / file).is_file()]
        if lacking:
            print(f"{name}: passed over, for {options.root / name} has no {' and no '.join(lacking)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            of_cuts = parts(name, options, Path(folder))
            found = {}
            for cut, (train, part) in of_cuts.items():
                print(f"{name}, {cut}: {train.nnz:,} edges, {part.targets.nnz:,} to be found of {len(part.users):,} users")
                found[cut] = {model: fitted(model, train, part, options) for model in options.models}
            print_table(found)


if __name__ == "__main__":
    main()
