"""Answer what reviewers of recommender papers ask of a table, each item yes or no by what the run recorded.

The questions are those of artifact reviews and of studies of reproducibility: Ferrari Dacrema, M. et al. (2021): A
troubling analysis of reproducibility and progress in recommender systems research. ACM Transactions on Information
Systems 39; Cremonesi, P. and Jannach, D. (2021): Progress in recommender systems research: Crisis? What crisis? AI
Magazine 42; ACM (2020): Artifact review and badging, version 1.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from oneclass.models.registry import MODELS
from oneclass.tasks.citation.record import RunRecord
from oneclass.tasks.citation.rerun import find_obstacle
from oneclass.tasks.leaderboard import FOLDS_NOTE
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


def _check_data(record: RunRecord, split_hashes: dict[str, dict[str, str]]) -> Iterator[Item]:
    dataset, files = record.dataset, record.files
    counts = ", ".join(f"{count:,} {name}" for name, count in record.interactions.items())
    yield Item(
        "data", "Is the data set named, with its licence?", bool(dataset.licence), dataset.licence or "not stated"
    )
    public = bool(dataset.urls) or dataset.name == "demo"
    where = ", ".join(dataset.urls) or ("simulated by the run" if public else "its file names no URL")
    yield Item("data", "Can a reader get the raw data?", public, where)
    yield Item("data", "Are the raw files identified?", files.height > 0, f"sha256 of {files.height} files in run.json")
    stages = record.settings["binarize"]
    yield Item(
        "data",
        "Is the preprocessing stated?",
        True,
        f"run.toml, [binarize]: threshold {stages['threshold']}; {counts or 'replaced by a later run'}",
    )
    kept = [name for name in record.splits if split_hashes.get(name)]
    missing = sorted(set(record.splits) - set(kept))
    evidence = f"digests of {', '.join(kept)}" + (f"; no longer stored: {', '.join(missing)}" if missing else "")
    yield Item("data", "Are the splits identified?", bool(kept) and not missing, evidence)


def _check_models(record: RunRecord) -> Iterator[Item]:
    simple = [name for name in SIMPLE_MODELS if name in record.models]
    yield Item("models", "Are there simple baselines?", len(simple) > 1, ", ".join(simple) or "none")
    searched = {name: record.describe_search(name) for name in record.models if MODELS[name].Settings.search_space}
    trials = {name: search.get("trials") or 0 for name, search in searched.items()}
    trials |= {row.name: row.trials for file in record.libraries for row in file.table.library_rows}
    text = ", ".join(f"{name} {number}" for name, number in trials.items()) or "no model has settings to search"
    is_tuned = all(trials.values())
    yield Item("models", "Are all models tuned on these data?", is_tuned, f"trials of the run's search: {text}")
    equal = is_tuned and len(set(trials.values())) <= 1
    yield Item("models", "Do all tuned models have equal budgets?", equal, f"trials of the run's search: {text}")
    yield Item("models", "Are search spaces and final settings stated?", True, "rows.json, run.toml")
    yield _check_test_part(record, {name: search.get("origin", "default") for name, search in searched.items()})
    warm = bool(record.settings.get("train", {}).get("warm_start"))
    yield Item("models", "Does each fit start anew?", not warm, f"train.warm_start = {str(warm).lower()}")


def _check_test_part(record: RunRecord, origins: dict[str, str]) -> Item:
    question = "Are settings chosen without the test part?"
    if any(row.folds > 1 for row in record.leaderboard):
        return Item("models", question, False, FOLDS_NOTE)
    unknown = [f"{name} ({origin})" for name, origin in origins.items() if origin in ("data set", "given")]
    if unknown:
        return Item("models", question, False, f"the run does not know how these were chosen: {', '.join(unknown)}")
    return Item("models", question, True, "chosen by validation users or edges, or defaults")


def _check_statistics(record: RunRecord) -> Iterator[Item]:
    yield Item("evaluation", "Are all items ranked, without a sample?", True, "targets are ranked among all candidates")
    yield Item("evaluation", "Are metrics defined with their normalisation?", True, "docs/reference.md, metrics")
    users = ", ".join({row.protocol: f"{row.protocol} {row.described_users}" for row in record.leaderboard}.values())
    yield Item("statistics", "Are there standard errors?", True, f"over users: {users}")
    tested = all(row.against_best is not None for row in record.leaderboard if row.standing != "best")
    paired = "paired tests over users, Holm's procedure over all lists of a table"
    yield Item("statistics", "Are differences tested, corrected for their number?", tested, paired)
    seeds = f"one seed, {record.settings['seed']}, for splits and draws"
    yield Item("statistics", "Are results repeated over several seeds?", False, seeds)


def _check_environment(record: RunRecord, code_version: str) -> Iterator[Item]:
    same = record.code_version == code_version
    versions = record.code_version if same else f"run: {record.code_version}; this folder: {code_version}"
    clean = not record.code_version.endswith("-dirty")
    yield Item("environment", "Is the code that ran identified?", clean, record.code_version)
    yield Item("environment", "Is it the code that wrote this folder?", same, versions)
    yield Item("environment", "Are all packages pinned?", True, "environment.lock")
    machine = record.machine or {}
    hardware = "run.json, machine: {processor}, {used_cores} of {cores} cores, {memory}, {system}, Python {python}"
    stated = hardware.format(memory=format_size(machine["memory_bytes"]), **machine) if machine else ""
    yield Item(
        "environment", "Is the hardware of the run stated?", bool(machine), stated or "run.json, machine is null"
    )
    yield Item("environment", "Are times and memory stated?", not record.fits.is_empty(), "rows.json, for each fit")
    joules = machine.get("energy_joules")
    energy = "is null: RAPL was not readable" if joules is None else f"= {joules:.0f}, by RAPL"
    yield Item("environment", "Is the energy stated?", joules is not None, f"run.json, machine.energy_joules {energy}")
    obstacle = find_obstacle(record)
    yield Item("environment", "Does one command make the table again?", obstacle is None, obstacle or "sh reprint.sh")


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
