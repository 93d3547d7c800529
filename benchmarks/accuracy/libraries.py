"""Our models beside other libraries', each tuned, on the same split and the same unseen users, in one run.

    python -m benchmarks.accuracy.libraries --dataset ml-1m --source ratings.csv [--seed 1] [--libraries NAME ...]
    python -m benchmarks.accuracy.libraries --dataset lastfm --source user_artists.dat --search 12
    python -m benchmarks.accuracy.libraries --dataset ml-1m --source ratings.csv --tune irspack_ials --trials 30

Run by an interpreter that also has `pip install implicit irspack fastslim kindling-rec hpfrec`. The split is
strong_generalization as the pipeline makes it: users for validation and for the test, none of them in training; 500
each by the scheme of Liang et al. 2018 where the data set's file says so, else a tenth of the users each. Our models
have the settings of `tasks/datasets/`, or those that a run finds by itself before its fits, and `blend` is theirs, as a
run makes it. The libraries have the settings of `LIBRARIES` (`benchmarks/accuracy/competitors.py`), which were chosen
on ml-1m, or with `--search` the best of so many. All were chosen on the validation users (how, both files say), and are
judged here on the test users. Each library folds the unseen users in by its own means. S is the mean rank with strict
inequality. A difference is ours minus the library's, paired over users, with its standard error and the p-value of the
paired t-test; in the last rows ours is the model that is best on the validation users.

`--tune` searches one library's settings on the validation users and judges nothing more; both begin at `Library.start`;
`--part validation` judges on them.
"""

import argparse
import logging
import tempfile
import warnings

import numpy as np

from benchmarks.accuracy import competitors
from benchmarks.accuracy.bayesian_models import prepared
from benchmarks.accuracy.competitors import LIBRARIES, evaluate_users, library_fit, search
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.models.evaluation import metrics
from oneclass.tasks import datasets
from oneclass.tasks.stores.home import resolve_root

COLUMNS = {"nDCG@100": "ndcg@100", "recall@20": "recall@20", "recall@50": "recall@50", "S": "mean_rank"}
JUDGED = ("ndcg@100", "mean_rank")  # metrics of which differences are printed
MODELS = ["wmf", "mrf_dense", "mrf_sparse", "slim", "graph_filter", "hpf"]


def read_arguments() -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", required=True, help="a log; may be repeated")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME", help="ours, of which blend is made")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), metavar="NAME")
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--search", type=int, metavar="N", help="search each library's settings first, N of them")
    parser.add_argument("--tune", choices=LIBRARIES, help="search this library's settings instead")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def settled(given: argparse.Namespace, folder: str) -> RunSettings:
    """The settings of a run with our models, at home in the folder."""
    own = datasets.load_dataset(given.dataset, resolve_root(folder), with_logs=True).split
    return resolve_settings(
        BackfillParameters(
            dataset=given.dataset,
            home=folder,
            source=given.source,
            models=given.models,
            seed=given.seed,
            protocols=["strong_generalization"],
            threads=given.threads,
            settings={"split.scheme": "liang2018"} if "held_out_users" in own else {"split.min_validation_users": 0},
        )
    )


def print_values(found: dict[str, dict[str, np.ndarray]]) -> None:
    print(f"\n| model | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, of_users in found.items():
        means = (metrics.mean_and_error(of_users[metric]) for metric in COLUMNS.values())
        print(f"| {name} | {' | '.join(f'{mean.value:.4f} ± {mean.standard_error:.4f}' for mean in means)} |")


def print_differences(found: dict[str, dict[str, np.ndarray]], pairs: list[tuple[str, str]]) -> None:
    print("\n| ours | beside | nDCG@100 | p | S | p |\n|---|---|---|---|---|---|")
    for own, other in pairs:
        compared = (metrics.compare_paired(found[own][metric], found[other][metric]) for metric in JUDGED)
        cells = [f"{one.difference:+.4f} ± {one.standard_error:.4f} | {one.p_value:.2g}" for one in compared]
        print(f"| {own} | {other} | {' | '.join(cells)} |")


def main() -> None:
    given = read_arguments()
    warnings.filterwarnings("ignore", module="irspack|hpfrec|implicit|fastslim")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("oneclass.tasks.blend").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        run = settled(given, folder)
        split = prepared(run)["strong_generalization"]
        print(
            f"{run.dataset.name}: {split.train.shape[0]} training users x {split.train.shape[1]} items, "
            f"{split.train.nnz} edges, {split.parts[given.part].targets.shape[0]} users of the {given.part} part, "
            f"seed {given.seed}\n",
            flush=True,
        )
        if given.tune:
            search(given.tune, split, given.trials, given.threads, given.seed)
            return
        models = competitors.fitted(run, given.models, split)
        on_validation = {
            name: evaluate_users(model, split.parts["validation"])["ndcg@100"] for name, model in models.items()
        }
        best = max(on_validation, key=lambda name: on_validation[name].mean())
        found = {name: evaluate_users(model, split.parts[given.part]) for name, model in models.items()}
        for name in given.libraries:
            settings = LIBRARIES[name].settings
            if given.search:
                settings = search(name, split, given.search, given.threads, given.seed)
            found[name] = evaluate_users(
                library_fit(name, settings, split, given.threads, given.seed), split.parts[given.part]
            )
    print_values(found)
    alike = [(LIBRARIES[name].ours, name) for name in given.libraries if LIBRARIES[name].ours in models]
    print_differences(found, [*alike, *((best, name) for name in found if name != best)])


if __name__ == "__main__":
    main()
