"""What each stage reads and writes, as Prefect's assets: the lineage from raw files to published tables.

Keys are the same in every run, so that one run's lineage joins the next one's: `file:///...` for files,
`duckdb://<dataset>/<schema>.<table>` for tables, `model://<dataset>/<protocol>/<model>` for fits.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prefect.assets import Asset, AssetProperties

import data_contracts
from tasks.stores.home import Home

NO_INPUT = ("quarantine", "done")  # folders of the landing folder that are never read
FILES_NAMED = 50  # a log with more files than this is named by its folders
KEY_LENGTH = 512
NOT_IN_A_KEY = re.compile(r"[\s\0#?&%\"'<>\[\]{}|\\^`]")  # what Prefect refuses there
PUBLISHED_FILES = (
    "evaluation.parquet",
    "evaluation.csv",
    "evaluation.md",
    "recommendations.parquet",
    "published.duckdb",
    "manifest.json",
)


def _on_leave_one_out(arguments: Mapping[str, Any]) -> bool:
    return arguments["protocol"] == "leave_one_out"


# When a stage writes a table that it does not write in every run, by the stage's arguments.
CONDITIONS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "operations.nights": lambda arguments: not arguments["sources"] and not arguments.get("replace"),
    "splits.strong_generalization": lambda arguments: "strong_generalization" in arguments["protocols"],
    "splits.leave_one_out": lambda arguments: "leave_one_out" in arguments["protocols"],
    "splits.next_events": lambda arguments: "next_events" in arguments["protocols"],
    "splits.given": lambda arguments: "given" in arguments["protocols"],
    "evaluation.ranks_by_degree": _on_leave_one_out,
    "evaluation.ranks_by_both_degrees": _on_leave_one_out,
    "evaluation.like_by_degree": _on_leave_one_out,
    "evaluation.calibration": _on_leave_one_out,
    "evaluation.sweeps": lambda arguments: False,  # the stage's contract closes the flow `sweep` too, which writes it
    "published.recommendations": lambda arguments: arguments.get("choice") is not None,
    "operations.promotions": lambda arguments: arguments.get("judgement") is not None,
}


class Lineage(NamedTuple):
    """The assets that a stage reads, and those that it makes; empty for an unknown stage."""

    reads: list[Asset]
    writes: list[Asset]


def of(stage: str, arguments: Mapping[str, Any]) -> Lineage:
    """The lineage of one call of a stage.

    Args:
        arguments: the stage's own, by name; `home` is among them.
    """
    home: Home = arguments["home"]
    made = _tables(home, *tables_of(stage, arguments))
    match stage:
        case "ingest":
            return Lineage(_files(_raw(home, arguments["sources"])), made)
        case "binarize":
            return Lineage(_tables(home, "raw.events"), made)
        case "split" | "diagnose":
            return Lineage(_tables(home, "curated.interactions"), made)
        case "tune":
            return Lineage([one for protocol in arguments["digests"] for one in _edges(home, protocol)], made)
        case "train":
            protocol = arguments["protocol"]
            return Lineage(_edges(home, protocol), [*made, *_fits(home, protocol, arguments["model"])])
        case "evaluate":
            protocol = arguments["protocol"]
            return Lineage([*_edges(home, protocol), *_fits(home, protocol, *arguments["fit_digests"])], made)
        case "publish":
            choice = arguments.get("choice")
            read = _fits(home, "all_edges", choice.model) if choice else []
            names = [*PUBLISHED_FILES, "model"] if choice else PUBLISHED_FILES
            files = _files([home.published / name for name in names])
            return Lineage([*_tables(home, "evaluation.metrics"), *read], [*made, *files])
    return Lineage([], made)


def tables_of(stage: str, arguments: Mapping[str, Any]) -> list[str]:
    """The tables that a call of a stage writes: those with a contract that closes it, temporary ones left out."""
    tables = [contract.table for contract in data_contracts.for_stage(stage) if "." in contract.table]
    return [table for table in tables if table not in CONDITIONS or CONDITIONS[table](arguments)]


def _tables(home: Home, *names: str) -> list[Asset]:
    return [_asset(f"duckdb://{home.dataset}/{name}", f"{name} of {home.dataset}") for name in names]


def _edges(home: Home, protocol: str) -> list[Asset]:
    """The table that a protocol's training edges come from."""
    return _tables(home, "curated.interactions" if protocol == "all_edges" else f"splits.{protocol}")


def _fits(home: Home, protocol: str, *models: str) -> list[Asset]:
    return [
        _asset(f"model://{home.dataset}/{protocol}/{model}", f"{model} fitted on {protocol} of {home.dataset}")
        for model in models
    ]


def _raw(home: Home, sources: Sequence[str | Path]) -> list[Path]:
    paths = [Path(source) for source in sources]
    if not paths and home.landing.is_dir():
        paths = sorted(path for path in home.landing.iterdir() if path.name not in NO_INPUT)
    return paths if len(paths) <= FILES_NAMED else sorted({path.parent for path in paths})


def _files(paths: Sequence[Path]) -> list[Asset]:
    return [_asset(f"file://{path.absolute()}", path.name) for path in paths]


def _asset(key: str, name: str) -> Asset:
    return Asset(key=NOT_IN_A_KEY.sub("_", key)[:KEY_LENGTH], properties=AssetProperties(name=name))
