"""Answer what reviewers of recommender papers ask of a table, each item yes or no by what the run recorded.

The questions are those of artifact reviews and of studies of reproducibility: Ferrari Dacrema, M. et al. (2021): A
troubling analysis of reproducibility and progress in recommender systems research. ACM Transactions on Information
Systems 39; Cremonesi, P. and Jannach, D. (2021): Progress in recommender systems research: Crisis? What crisis? AI
Magazine 42; ACM (2020): Artifact review and badging, version 1.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from oneclass.models.evaluation.definitions import NEW_ITEM_METRICS, find_definition
from oneclass.models.registry import MODELS
from oneclass.tasks.citation.record import RunRecord
from oneclass.tasks.citation.rerun import find_obstacle
from oneclass.tasks.leaderboard import FOLDS_NOTE
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores.resources import format_size

SIMPLE_MODELS = ("popularity", "item_knn", "rp3beta")


@dataclass(frozen=True)
class Item:
    """One question with its answer and the evidence for it."""

    topic: str
    question: str
    answer: bool
    evidence: str


def build_checklist(record: RunRecord, code_version: str, split_hashes: dict[str, dict[str, str]]) -> list[Item]:
    """Answer every question about a run.

    Args:
        code_version: that of the program which answers.
        split_hashes: sha256 of each stored array, by protocol or fold.
    """
    return [
        *_check_data(record, split_hashes),
        *_check_models(record),
        *_check_statistics(record),
        *_check_environment(record, code_version),
    ]


def _answer(topic: str, question: str, evidence: str, problem: str = "") -> Item:
    """Answer yes with the evidence, or no with the problem, if there is one; both name a file and its key."""
    return Item(topic, question, not problem, problem or evidence)


def _check_data(record: RunRecord, split_hashes: dict[str, dict[str, str]]) -> Iterator[Item]:
    dataset, files, binarize = record.dataset, record.files, record.settings["binarize"]
    yield _answer(
        "data",
        "Is the data set named, with its licence?",
        f"run.json, dataset.licence: {dataset.licence}",
        "" if dataset.licence else "run.json, dataset.licence is empty: the data set's file states none",
    )
    yield _answer(
        "data",
        "Can a reader get the raw data?",
        f"run.json, dataset.urls: {', '.join(dataset.urls)}" if dataset.urls else "reprint.sh simulates the log",
        "" if dataset.urls or dataset.name == "demo" else "run.json, dataset.urls is empty: its file names none",
    )
    yield _answer(
        "data",
        "Are the raw files identified?",
        f"run.json, files: sha256 of {files.height} files",
        "run.json, files is empty" if files.is_empty() else "",
    )
    counts = ", ".join(f"{count:,} {name}" for name, count in record.interactions.items())
    yield _answer(
        "data",
        "Is the preprocessing stated, with what it removed?",
        f"run.toml, binarize.threshold = {binarize['threshold']}; run.json, preprocessing: "
        f"{record.steps.height} steps to {counts}",
        "" if counts else "run.json, preprocessing is empty: an earlier version ran",
    )
    missing = sorted(name for name in record.splits if not split_hashes.get(name))
    yield _answer(
        "data",
        "Are the splits identified?",
        f"run.json, splits: digests of {', '.join(record.splits)}",
        f"run.json, splits: no longer stored: {', '.join(missing) or 'all'}" if missing or not record.splits else "",
    )


def _check_models(record: RunRecord) -> Iterator[Item]:
    simple = [name for name in SIMPLE_MODELS if name in record.models]
    listed = f"table.csv, model: {', '.join(simple) or 'none'}"
    few = f"{listed}, of {', '.join(SIMPLE_MODELS)}" if len(simple) < 2 else ""
    yield _answer("models", "Are there simple baselines?", listed, few)
    searched = {name: record.describe_search(name) for name in record.models if MODELS[name].Settings.search_space}
    trials = {name: search.get("trials") or 0 for name, search in searched.items()}
    trials |= {row.name: row.trials for file in record.libraries for row in file.table.library_rows}
    counts = ", ".join(f"{name} {number}" for name, number in trials.items()) or "no model has settings to search"
    text = f"rows.json, search.trials: {counts}"
    is_tuned = all(trials.values())
    yield _answer("models", "Are all models tuned on these data?", text, "" if is_tuned else text)
    equal = is_tuned and len(set(trials.values())) <= 1
    yield _answer("models", "Do all tuned models have equal budgets?", text, "" if equal else text)
    yield _answer(
        "models",
        "Are search spaces and final settings stated?",
        "rows.json, search.space, fits.effective",
        _list_unknown_fits(record, "effective", [fit for fit, of in record.effective.items() if of is None]),
    )
    yield _check_trials(record)
    yield _check_test_part(record, {name: search.get("origin", "default") for name, search in searched.items()})
    is_warm = bool(record.settings.get("train", {}).get("warm_start"))
    stated = f"run.json, warm_start = {str(is_warm).lower()}"
    yield _answer("models", "Does each fit start anew?", stated, stated if is_warm else "")


def _list_unknown_fits(record: RunRecord, key: str, digests: list[str]) -> str:
    """List the fits of the table whose key is null in `rows.json`; empty if there is none."""
    of_table = record.fits.filter(pl.col("model").is_in(record.models), pl.col("digest").is_in(digests))
    names = [f"{model} ({protocol})" for model, protocol in of_table.select("model", "protocol").iter_rows()]
    return f"rows.json, fits.{key} is null: {', '.join(names)}" if names else ""


def _check_trials(record: RunRecord) -> Item:
    searched = {
        name: chosen["trials"]
        for name, chosen in record.model_settings.items()
        if name in record.models and name != "blend" and chosen["origin"] in ("search", "kept")
    }  # the weights of a blend are not drawn
    counts = dict(record.trials.group_by("model", maintain_order=True).len().iter_rows())
    lacking = [name for name, trials in searched.items() if counts.get(name, 0) < trials]
    listed = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none, since nothing was searched"
    problem = f"trials.csv lacks those of {', '.join(lacking)}" if lacking else ""
    return _answer("models", "Is every trial of a search stated?", f"trials.csv: {listed}", problem)


def _check_test_part(record: RunRecord, origins: dict[str, str]) -> Item:
    problem = f"table.md: {FOLDS_NOTE}" if any(row.folds > 1 for row in record.leaderboard) else ""
    if unknown := [f"{name} ({origin})" for name, origin in origins.items() if origin in ("data set", "given")]:
        problem = problem or f"rows.json, search.origin: the run does not know how of {', '.join(unknown)}"
    evidence = "rows.json, search.origin: by validation users or edges, or defaults"
    return _answer("models", "Are settings chosen without the test part?", evidence, problem)


def _check_statistics(record: RunRecord) -> Iterator[Item]:
    apart = ", ".join(name for name in record.metric_names if name in NEW_ITEM_METRICS)
    yield _answer(
        "evaluation",
        "Are all items ranked?",
        "run.json, metrics: candidates are all items, without a sample",
        f"metrics.csv: {apart} rank new items among new ones, and known ones among known ones" if apart else "",
    )
    unknown = ", ".join(name for name in record.metric_names if find_definition(name) is None)
    yield _answer(
        "evaluation",
        "Are metrics defined with their normalisation?",
        "run.json, metrics: formula and source of each",
        f"run.json, metrics lacks {unknown}" if unknown else "",
    )
    users = ", ".join({row.protocol: f"{row.protocol} {row.described_users}" for row in record.leaderboard}.values())
    lacking = ", ".join(
        f"{row.model}/{row.score} ({row.protocol})"
        for row in record.leaderboard
        if row.cells[PROTOCOLS[row.protocol].main_metric][1] is None
    )
    yield _answer(
        "statistics",
        "Are there standard errors?",
        f"table.csv, standard_error: over {users}",
        f"table.csv, standard_error is empty: {lacking}" if lacking else "",
    )
    tested = all(
        row.against_best is not None and row.against_best.p_value is not None
        for row in record.leaderboard
        if row.standing != "best"
    )
    yield _answer(
        "statistics",
        "Are differences tested, corrected for their number?",
        "table.csv, corrected_p_value: paired tests over users, Holm's procedure over all lists",
        "" if tested else "table.csv, corrected_p_value is empty in rows that are not the best",
    )
    seeds = ", ".join(map(str, record.seeds["seed"].unique().sort()))
    yield _answer(
        "statistics",
        "Are results repeated over several seeds?",
        f"seeds.csv: {seeds}, for splits and draws",
        f"run.json, seed: one, {seeds}, for splits and draws" if record.seeds["seed"].n_unique() < 2 else "",
    )


def _check_environment(record: RunRecord, code_version: str) -> Iterator[Item]:
    stated = f"run.json, code_version: {record.code_version}"
    changed = f"{stated}, a commit with other changes" if record.code_version.endswith("-dirty") else ""
    yield _answer("environment", "Is the code that ran identified?", stated, changed)
    other = f"{stated}; this folder: {code_version}" if record.code_version != code_version else ""
    yield _answer("environment", "Is it the code that wrote this folder?", stated, other)
    yield _answer(
        "environment",
        "Are all packages of the run pinned?",
        f"environment.lock: {len(record.packages or {})} packages",
        "" if record.packages else "environment.lock: of the program that wrote it; the run recorded none",
    )
    machine = record.machine or {"memory_bytes": 0}
    hardware = "run.json, machine: {processor}, {used_cores} of {cores} cores, {memory}, {system}, Python {python}"
    yield _answer(
        "environment",
        "Is the hardware of the run stated?",
        hardware.format(memory=format_size(machine["memory_bytes"]), **machine) if record.machine else "",
        "" if record.machine else "run.json, machine is null: an earlier version ran",
    )
    yield _answer(
        "environment",
        "Are times and memory stated?",
        "rows.json, fits.seconds, cpu_seconds, peak_bytes",
        _list_unknown_fits(
            record, "cpu_seconds", record.fits.filter(pl.col("cpu_seconds").is_null())["digest"].to_list()
        ),
    )
    joules = machine.get("energy_joules")
    yield _answer(
        "environment",
        "Is the energy stated?",
        f"run.json, machine.energy_joules = {joules or 0:.0f}, by RAPL",
        "run.json, machine.energy_joules is null: RAPL was not readable" if joules is None else "",
    )
    yield _answer("environment", "Does one command make the table again?", "sh reprint.sh", find_obstacle(record) or "")


def format_checklist(items: list[Item]) -> str:
    """Format the items as a table in Markdown."""
    answered = sum(item.answer for item in items)
    lines = [
        f"{answered} of {len(items)} items: yes.",
        "",
        "| topic | question | answer | evidence |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {item.topic} | {item.question} | {'yes' if item.answer else 'no'} | {item.evidence.replace('|', '/')} |"
        for item in items
    ]
    return "\n".join(["# Checklist", "", *lines, ""])
