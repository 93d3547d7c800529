"""Compare our models with other libraries', each tuned with the same budget, on the same splits of several logs.

    python -m benchmarks.accuracy.libraries --out FOLDER --log demo --log ml-1m=ratings.csv [--trials 10]
    python -m benchmarks.accuracy.libraries --out FOLDER --log lastfm=user_artists.dat --libraries implicit_als
    python -m benchmarks.accuracy.libraries --out FOLDER --home HOME --run RUN --log ml-1m

Run it by an interpreter that also has the libraries; a missing one is left out:

    pip install implicit irspack rectools lenskit
    pip install --no-deps -c constraints.txt numpy attrs

The second command is needed because RecTools 0.19 pins older versions of both. `kindling-rec`, `hpfrec` and `fastslim`
have rows only if `--libraries` names them.

The split is that of `--protocol` as the pipeline makes it, by default strong_generalization with one draw: validation
and test users are not in training; 500 each by the scheme of Liang et al. 2018 if the data set's file says so, else a
tenth each. Each library folds histories in by its own means, also those of known users. Each row is searched by the
same function: the first trial has the initial settings (ours: the defaults; libraries: those of
`competitors.LIBRARIES`, some tuned on ml-1m), the others are drawn by Optuna's TPE from the row's space, until there
are `--trials` or, after the first, `--seconds` of CPU time are spent. Every trial is fitted on all training edges and
evaluated by the protocol's metric on the validation part; a model with several scores by its best. `blend` adds our
tuned models as a run does, with weights fitted on validation users; not under leave_one_out. The test part is read
once, at the end.

With `--home` the split or folds are those that a run stored, by default the latest of the data set, and only libraries
have rows: `oneclass cite --libraries FOLDER/NAME.json` adds them to the run's own table.

FOLDER gets one file per log, with every row's space, settings, trials, CPU seconds and the test users' values, and
`table.md` and `table.tex`. A log with a file there is not computed again. The best row of a log is bold; underlined are
those that a paired t-test over users, corrected for the choice of the best
(`oneclass.models.evaluation.multiple_tests`), does not call worse.
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

from benchmarks.accuracy.competitors import LIBRARIES, fit_library
from benchmarks.accuracy.paper_table import format_latex, format_markdown
from benchmarks.accuracy.split_logs import PROTOCOLS_OF_TABLES, SplitLog, load_run_split, split_log
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
RANDOM_TRIALS = 4  # before the sampler learns from them
OWN_MODELS = ["popularity", "item_knn", "sansa", "slim", "mrf_dense", "mrf_sparse", "wmf", "graph_filter"]
DEFAULT_LIBRARIES = [
    "implicit_bm25", "implicit_als", "irspack_ials", "irspack_ease", "irspack_slim", "irspack_rp3beta",
    "rectools_ease", "rectools_pure_svd", "lenskit_als", "lenskit_item_knn",
]  # fmt: skip

# Of drawn values (none for the initial settings) and edges, to a model.
FitFunction = Callable[[dict[str, Any], csr_matrix], Any]


@dataclass
class SearchResult:
    """The result of a search: the best drawn values, the best score with them, trials and CPU seconds.

    Attributes:
        of_trials: of each trial its `number`, `state`, `value`, `standard_error`, `score`, CPU `seconds`, drawn
            `settings` and, if it failed, the reason (`note`).
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
    parser.add_argument("--home", metavar="DIR", help="home of a run, whose splits the libraries are fitted on")
    parser.add_argument("--run", metavar="RUN", help="by default the latest of the data set")
    parser.add_argument("--protocol", choices=PROTOCOLS_OF_TABLES, default=PROTOCOLS_OF_TABLES[0])
    parser.add_argument("--models", nargs="+", default=OWN_MODELS, metavar="NAME", help="ours, with the blend")
    parser.add_argument("--libraries", nargs="*", choices=LIBRARIES, default=DEFAULT_LIBRARIES, metavar="NAME")
    parser.add_argument("--trials", type=int, default=10, help="of each row; 1 takes the initial settings")
    parser.add_argument("--seconds", type=float, default=600.0, help="CPU seconds of the search of a row")
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
) -> SearchResult:
    """Search the settings of one row; a trial is fitted on each split and evaluated on the users of all."""
    parts, metric = [data.part for data in validations], validations[0].metric
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=options.seed, n_startup_trials=RANDOM_TRIALS)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    began, best = time.process_time(), SearchResult({}, "", -np.inf, 0, 0)
    trials: list[dict[str, Any]] = []
    while len(trials) < options.trials and (not trials or (space and time.process_time() - began < options.seconds)):
        trial = study.ask(dict(space)) if trials else None
        values, started = trial.params if trial else {}, time.process_time()
        outcome = {"number": len(trials) + 1, "state": "done", "settings": values, "note": ""}
        try:
            mean, score = evaluate_model([fit(values, data.train) for data in validations], parts, metric)
        except ValueError as error:  # for example settings that contradict each other
            print(f"  {values}: {error}", flush=True)
            score, mean = "", Mean(0.0, None, 0)
            outcome |= {"state": "failed", "note": str(error)}
        value = mean.value if outcome["state"] == "done" else None
        outcome |= {"score": score, "value": value, "standard_error": mean.standard_error}
        trials.append(outcome | {"seconds": round(time.process_time() - started, 3)})
        if trial:
            study.tell(trial, mean.value)
        if mean.value > best.value:
            best = SearchResult(values, score, mean.value, 0, 0)
    return replace(best, trials=len(trials), seconds=time.process_time() - began, of_trials=trials)


def tune_own(options: argparse.Namespace, log: SplitLog) -> Iterator[LibraryRow]:
    """Search, fit and evaluate our models, and the blend of them."""
    digests, chosen = {}, {}
    store_fit = partial(train, log.home, RUN, protocol=log.protocol, matrices_digest=log.digests[0], seed=options.seed)
    [validation] = log.validations
    for name in options.models:
        kind = MODELS[name]
        space = {key: to_distribution(of) for key, of in kind.Settings.search_space.items()}

        def build_settings(values: dict[str, Any], kind: Any = kind) -> ModelSettings:
            return kind.Settings().with_trial_values(values, validation.train) if values else kind.Settings()

        def fit_model(values: dict[str, Any], edges: csr_matrix, kind: Any = kind, build: Any = build_settings) -> Any:
            return kind(build(values), seed=options.seed, threads=options.threads).fit(edges)

        result = search_settings(fit_model, space, options, log.validations)
        chosen[name], began = build_settings(result.values), time.process_time()
        digests[name] = store_fit(model=name, settings=chosen[name]).digest
        seconds = time.process_time() - began
        model = fits.load_fit(log.home, name, digests[name])
        for trial in result.of_trials:
            trial["settings"] = build_settings(trial["settings"]).model_dump(mode="json")
        yield make_row(name, "oneclass", space, chosen[name].model_dump(mode="json"), result, [model], seconds, log)
    if log.protocol != "strong_generalization":
        return
    began = time.process_time()
    components = choose_components(
        log.home, RUN, protocol=log.protocol, judged=[(log.digests[0], digests)], settings=chosen,
        seed=options.seed, day=date.today(),
    )  # fmt: skip
    if components is not None:
        digests["blend"] = store_fit(model="blend", settings=components).digest
        model = fits.load_fit(log.home, "blend", digests["blend"])
        mean, score = evaluate_model([model], [validation.part], validation.metric)
        seconds = time.process_time() - began
        weights = {component.model: component.weight for component in components.components}
        result = SearchResult({}, score, mean.value, 1, seconds)
        yield make_row("blend", "oneclass", {}, weights, result, [model], seconds, log)


def tune_libraries(options: argparse.Namespace, log: SplitLog) -> Iterator[LibraryRow]:
    """Search, fit and evaluate the libraries' models that are installed."""
    for name in options.libraries:
        of, library = LIBRARIES[name], name.split("_")[0]
        if importlib.util.find_spec(library) is None:
            print(f"{name}: left out, {library} is not installed", flush=True)
            continue

        def fit_model(values: dict[str, Any], edges: csr_matrix, name: str = name) -> Any:
            settings = {**LIBRARIES[name].settings, **values}
            return fit_library(name, settings, edges, options.threads, options.seed)

        result = search_settings(fit_model, of.space, options, log.validations)
        began = time.process_time()
        models = [fit_model(result.values, split.train) for split in log.splits]
        seconds = time.process_time() - began
        for trial in result.of_trials:
            trial["settings"] = {**of.settings, **trial["settings"]}
        yield make_row(name, library, of.space, {**of.settings, **result.values}, result, models, seconds, log)


def make_row(
    name: str,
    library: str,
    space: Mapping[str, BaseDistribution],
    settings: dict[str, Any],
    result: SearchResult,
    models: Sequence[Any],
    fit_seconds: float,
    log: SplitLog,
) -> LibraryRow:
    """Evaluate the fit of each split on its test users by the score that the search chose."""
    ranked = [
        rank_targets_by_score(model, part, on_progress=False).get(result.score)
        for model, part in zip(models, log.parts, strict=True)
    ]
    of_users = TargetRankMetrics.concatenate([ranks for ranks in ranked if ranks]).of_users
    names = PROTOCOLS[log.protocol].main_metrics
    documented = MODELS[name] if library == "oneclass" else LIBRARIES[name].fit
    row = LibraryRow(
        name=name,
        origin=f"{library} {importlib.metadata.version(library)}",
        title=(documented.__doc__ or name).splitlines()[0],
        space={key: str(distribution) for key, distribution in space.items()},
        settings=settings,
        score=result.score,
        validation=result.value,
        trials=result.trials,
        search_seconds=round(result.seconds, 1),
        fit_seconds=round(fit_seconds, 2),
        of_trials=result.of_trials,
        of_users={metric: of_users[metric].tolist() for metric in names if metric in of_users},
    )
    print(
        f"{name}: validation {result.value:.4f}, test {np.mean(row.of_users[names[0]]):.4f}, {result.trials} "
        f"trials in {result.seconds:.0f} s CPU, fit {fit_seconds:.1f} s",
        flush=True,
    )
    return row


def compute_log(options: argparse.Namespace, name: str, files: list[str]) -> dict[str, Any]:
    """Compute the rows of one log, with the options of the search."""
    with tempfile.TemporaryDirectory() as folder:
        log = load_run_split(options, name) if options.home else split_log(options, name, files, folder)
        print(f"\n{name}: {', '.join(f'{number:,} {size}' for size, number in log.sizes.items())}", flush=True)
        rows = [*([] if options.home else tune_own(options, log)), *tune_libraries(options, log)]
    keys = ("protocol", "trials", "seconds", "seed", "threads")
    return {
        "log": name,
        **log.sizes,
        "splits": log.digests,
        "run": log.run_id,
        **{key: getattr(options, key) for key in keys},
        "metric": log.validations[0].metric,
        "trial_edges": log.validations[0].train.nnz,
        "machine": describe_machine(options.threads),
        "rows": [row.model_dump() for row in rows],
    }


def main(arguments: list[str] | None = None) -> None:
    options = read_arguments(arguments)
    warnings.filterwarnings("ignore")
    logging.basicConfig(format="%(message)s")
    options.out.mkdir(parents=True, exist_ok=True)
    logs = []
    for argument in options.log:
        name, _, files = argument.partition("=")
        file = options.out / f"{name}.json"
        if not file.exists():
            try:
                log = compute_log(options, name, files.split(",") if files else [])
            except InputError as error:
                raise SystemExit(str(error)) from error
            if not log["rows"]:
                raise SystemExit(f"{name}: no row; none of the libraries is installed")
            file.write_text(json.dumps(log, indent=1))
        logs.append(json.loads(file.read_text()))
    if len({(log["protocol"], log["trials"]) for log in logs}) > 1:
        raise SystemExit(f"{options.out}: its files are of several protocols or budgets; take another folder")
    (options.out / "table.tex").write_text(format_latex(logs))
    (options.out / "table.md").write_text(format_markdown(logs))
    print("\n" + format_markdown(logs))


if __name__ == "__main__":
    main()
