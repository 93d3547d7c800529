"""Our models beside other libraries', each tuned with the same budget, on the same splits of several logs: one table.

    python -m benchmarks.accuracy.libraries --out FOLDER --log demo --log ml-1m=ratings.csv [--trials 10]
    python -m benchmarks.accuracy.libraries --out FOLDER --log lastfm=user_artists.dat --libraries implicit_als
    python -m benchmarks.accuracy.libraries --out FOLDER --home HOME --run RUN --log ml-1m

Run by an interpreter that also has the libraries, of which one that is missing is left out:

    pip install implicit irspack rectools lenskit
    pip install --no-deps -c constraints.txt numpy attrs

the second since RecTools 0.19 asks for older versions of these two than it needs. `kindling-rec`, `hpfrec` and
`fastslim` have rows if `--libraries` names them.

The split is that of `--protocol` as the pipeline makes it, strong_generalization by default and with one draw: users
for validation and for the test, none of them in training; 500 each by the scheme of Liang et al. 2018 where the data
set's file says so, else a tenth each. Each library folds a history in by its own means, also that of a known user.
Each row is searched by the same function: the first trial has the initial settings (ours: the defaults; the libraries':
those of `competitors.LIBRARIES`, some of which were tuned on ml-1m), the others are drawn by Optuna's TPE from the
row's space, until `--trials` are made or, after the first, `--seconds` of processor time are spent. Every trial is
fitted on all training edges and valued by the protocol's metric on the validation part; where a model has several
scores, by its best. `blend` adds our tuned models as a run does, weighed on validation users; not under leave_one_out.
The test part is read once, at the end.

With `--home` the split, or the folds, are those that a run stored, by default the latest of the data set, and only the
libraries have rows: `oneclass cite --libraries FOLDER/NAME.json` adds them to the run's own table.

FOLDER gets one file per log, with every row's space, settings, trials, processor seconds and the test users' values,
and `table.md` and `table.tex`. A log that has its file there is not computed again, so that the command prints the
table of an earlier call to the digit. The best row of a log is bold; underlined are those that a paired t-test over
users, corrected for the choice of the best (`oneclass.models.evaluation.multiple_tests`), does not call worse.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from scipy.sparse import csr_matrix

from benchmarks.accuracy.competitors import LIBRARIES, library_fit
from benchmarks.accuracy.paper_table import format_latex, format_markdown
from benchmarks.accuracy.split_logs import PROTOCOLS_OF_TABLES, Problem, load_run_split, split_log
from oneclass.models.evaluation.metrics import Mean
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.blend import choose_components
from oneclass.tasks.citation.library_files import LibraryRow
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_targets_by_score
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import fits
from oneclass.tasks.stores.machine import describe_machine
from oneclass.tasks.train import train
from oneclass.tasks.tuning.sampler import to_distribution
from oneclass.tasks.tuning.search import ValidationData
from oneclass.tasks.tuning.trial import evaluate_model

RUN = "benchmark"
STARTUP = 4  # drawn at random before the sampler learns from them
MODELS_OF_OURS = ["popularity", "item_knn", "sansa", "slim", "mrf_dense", "mrf_sparse", "wmf", "graph_filter"]
BESIDE = [
    "implicit_bm25", "implicit_als", "irspack_ials", "irspack_ease", "irspack_slim", "irspack_rp3beta",
    "rectools_ease", "rectools_pure_svd", "lenskit_als", "lenskit_item_knn",
]  # fmt: skip

# Drawn values of the space, none for the initial settings, and edges, to a model.
FitFunction = Callable[[dict[str, Any], csr_matrix], Any]


@dataclass
class Found:
    """The result of a search: the best drawn values, the best score by them, and what it took.

    Attributes:
        of_trials: of each trial its `number`, `state`, `value`, `standard_error`, `score`, processor `seconds`, drawn
            `settings` and, if it failed, why (`note`).
    """

    values: dict[str, Any]
    score: str
    value: float
    trials: int
    seconds: float
    of_trials: list[dict[str, Any]] = field(default_factory=list)


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--log", action="append", required=True, metavar="NAME[=FILE,...]", help="may be repeated")
    parser.add_argument("--home", metavar="DIR", help="that of a run, with whose split libraries are fitted")
    parser.add_argument("--run", metavar="RUN", help="of the home; by default the latest")
    parser.add_argument("--protocol", choices=PROTOCOLS_OF_TABLES, default=PROTOCOLS_OF_TABLES[0])
    parser.add_argument("--models", nargs="+", default=MODELS_OF_OURS, metavar="NAME", help="ours, also in the blend")
    parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=BESIDE, metavar="NAME")
    parser.add_argument("--trials", type=int, default=10, help="of each row; 1 takes the initial settings")
    parser.add_argument("--seconds", type=float, default=600.0, help="of processor time for the search of a row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.run and not options.home:
        parser.error("--run needs --home")
    return options


def search_settings(
    fit: FitFunction,
    space: Mapping[str, BaseDistribution],
    options: argparse.Namespace,
    validations: Sequence[ValidationData],
) -> Found:
    """Search the settings of one row: a trial is fitted on each split and valued by the users of all."""
    parts, metric = [data.part for data in validations], validations[0].metric
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=options.seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    began, best = time.process_time(), Found({}, "", -np.inf, 0, 0)
    made: list[dict[str, Any]] = []
    while len(made) < options.trials and (not made or (space and time.process_time() - began < options.seconds)):
        trial = study.ask(dict(space)) if made else None
        values, started = trial.params if trial else {}, time.process_time()
        ended = {"number": len(made) + 1, "state": "done", "settings": values, "note": ""}
        try:
            mean, score = evaluate_model([fit(values, data.train) for data in validations], parts, metric)
        except ValueError as error:  # such as settings that contradict each other
            print(f"  {values}: {error}", flush=True)
            score, mean = "", Mean(0.0, None, 0)
            ended |= {"state": "failed", "note": str(error)}
        value = mean.value if ended["state"] == "done" else None
        ended |= {"score": score, "value": value, "standard_error": mean.standard_error}
        made.append(ended | {"seconds": round(time.process_time() - started, 3)})
        if trial:
            study.tell(trial, mean.value)
        if mean.value > best.value:
            best = Found(values, score, mean.value, 0, 0)
    return replace(best, trials=len(made), seconds=time.process_time() - began, of_trials=made)


def tune_own(options: argparse.Namespace, problem: Problem) -> Iterator[LibraryRow]:
    """Search, fit and evaluate our models, and the blend of them."""
    digests, chosen = {}, {}
    keep = partial(
        train, problem.home, RUN, protocol=problem.protocol, matrices_digest=problem.digests[0], seed=options.seed
    )
    [validation] = problem.validations
    for name in options.models:
        kind = MODELS[name]
        ranges = {key: of for key, of in kind.Settings.search_space.items() if not of.manual_only}
        space = {key: to_distribution(of) for key, of in ranges.items()}

        def settings_of(values: dict[str, Any], kind: Any = kind) -> ModelSettings:
            return kind.Settings().tried(values, validation.train) if values else kind.Settings()

        def fit(values: dict[str, Any], edges: csr_matrix, kind: Any = kind, settings: Any = settings_of) -> Any:
            return kind(settings(values), seed=options.seed, threads=options.threads).fit(edges)

        found = search_settings(fit, space, options, problem.validations)
        chosen[name], began = settings_of(found.values), time.process_time()
        digests[name] = keep(model=name, settings=chosen[name]).digest
        took = time.process_time() - began
        model = fits.load_fit(problem.home, name, digests[name])
        for trial in found.of_trials:
            trial["settings"] = settings_of(trial["settings"]).model_dump(mode="json")
        yield make_row(name, "oneclass", space, chosen[name].model_dump(mode="json"), found, [model], took, problem)
    if problem.protocol != "strong_generalization":
        return
    began = time.process_time()
    components = choose_components(
        problem.home, RUN, protocol=problem.protocol, judged=[(problem.digests[0], digests)], settings=chosen,
        seed=options.seed, day=date.today(),
    )  # fmt: skip
    if components is not None:
        digests["blend"] = keep(model="blend", settings=components).digest
        model = fits.load_fit(problem.home, "blend", digests["blend"])
        mean, score = evaluate_model([model], [validation.part], validation.metric)
        took = time.process_time() - began
        weights = {component.model: component.weight for component in components.components}
        found = Found({}, score, mean.value, 1, took)
        yield make_row("blend", "oneclass", {}, weights, found, [model], took, problem)


def tune_libraries(options: argparse.Namespace, problem: Problem) -> Iterator[LibraryRow]:
    """Search, fit and evaluate the libraries' models that are installed."""
    for name in options.libraries:
        of, library = LIBRARIES[name], name.split("_")[0]
        if importlib.util.find_spec(library) is None:
            print(f"{name}: left out, {library} is not installed", flush=True)
            continue

        def fit(values: dict[str, Any], edges: csr_matrix, name: str = name) -> Any:
            settings = {**LIBRARIES[name].settings, **values}
            return library_fit(name, settings, edges, options.threads, options.seed)

        found = search_settings(fit, of.space, options, problem.validations)
        began = time.process_time()
        models = [fit(found.values, split.train) for split in problem.splits]
        took = time.process_time() - began
        for trial in found.of_trials:
            trial["settings"] = {**of.settings, **trial["settings"]}
        yield make_row(name, library, of.space, {**of.settings, **found.values}, found, models, took, problem)


def make_row(
    name: str,
    library: str,
    space: Mapping[str, BaseDistribution],
    settings: dict[str, Any],
    found: Found,
    models: Sequence[Any],
    fit_seconds: float,
    problem: Problem,
) -> LibraryRow:
    """Evaluate the fit of each split on its test users by the score that the search chose."""
    ranked = [
        rank_targets_by_score(model, part, on_progress=False).get(found.score)
        for model, part in zip(models, problem.parts, strict=True)
    ]
    of_users = TargetRankMetrics.concatenate([ranks for ranks in ranked if ranks]).of_users
    names = PROTOCOLS[problem.protocol].main_metrics
    described = MODELS[name] if library == "oneclass" else LIBRARIES[name].fit
    row = LibraryRow(
        name=name,
        origin=f"{library} {importlib.metadata.version(library)}",
        title=(described.__doc__ or name).splitlines()[0],
        space={key: str(distribution) for key, distribution in space.items()},
        settings=settings,
        score=found.score,
        validation=found.value,
        trials=found.trials,
        search_seconds=round(found.seconds, 1),
        fit_seconds=round(fit_seconds, 2),
        of_trials=found.of_trials,
        of_users={metric: of_users[metric].tolist() for metric in names if metric in of_users},
    )
    print(
        f"{name}: validation {found.value:.4f}, test {np.mean(row.of_users[names[0]]):.4f}, {found.trials} "
        f"trials in {found.seconds:.0f} s CPU, fit {fit_seconds:.1f} s",
        flush=True,
    )
    return row


def compute_log(options: argparse.Namespace, name: str, files: list[str]) -> dict[str, Any]:
    """Return the rows of one log and what they were computed with."""
    with tempfile.TemporaryDirectory() as folder:
        problem = load_run_split(options, name) if options.home else split_log(options, name, files, folder)
        print(f"\n{name}: {', '.join(f'{number:,} {what}' for what, number in problem.sizes.items())}", flush=True)
        rows = [*([] if options.home else tune_own(options, problem)), *tune_libraries(options, problem)]
    keys = ("protocol", "trials", "seconds", "seed", "threads")
    return {
        "log": name,
        **problem.sizes,
        "splits": problem.digests,
        "run": problem.run_id,
        **{key: getattr(options, key) for key in keys},
        "metric": problem.validations[0].metric,
        "trial_edges": problem.validations[0].train.nnz,
        "machine": describe_machine(options.threads),
        "rows": [row.model_dump() for row in rows],
    }


def main(arguments: list[str] | None = None) -> None:
    options = read_arguments(arguments)
    warnings.filterwarnings("ignore")
    logging.basicConfig(format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    logs = []
    for given in options.log:
        name, _, files = given.partition("=")
        file = options.out / f"{name}.json"
        if not file.exists():
            try:
                found = compute_log(options, name, files.split(",") if files else [])
            except InputError as error:
                raise SystemExit(str(error)) from error
            if not found["rows"]:
                raise SystemExit(f"{name}: no row; none of the libraries is installed")
            file.write_text(json.dumps(found, indent=1))
        logs.append(json.loads(file.read_text()))
    if len({(log["protocol"], log["trials"]) for log in logs}) > 1:
        raise SystemExit(f"{options.out}: its files are of several protocols or budgets; take another folder")
    (options.out / "table.tex").write_text(format_latex(logs))
    (options.out / "table.md").write_text(format_markdown(logs))
    print("\n" + format_markdown(logs))


if __name__ == "__main__":
    main()
