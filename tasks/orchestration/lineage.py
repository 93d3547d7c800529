"""What each stage reads and writes, as Prefect's assets: the lineage from raw files to published tables.

Keys are the same in every run, so that one run's lineage joins the next one's: `file:///...` for files,
`duckdb://<dataset>/<schema>.<table>` for tables, `model://<dataset>/<protocol>/<model>` for fits.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prefect.assets import Asset, AssetProperties

from tasks.stores.home import Home

FILES_NAMED = 50  # of a log in more files than this, the folders are named
KEY_LENGTH = 512
NOT_IN_A_KEY = re.compile(r"[\s\0#?&%\"'<>\[\]{}|\\^`]")  # what Prefect refuses there
PUBLISHED_FILES = ("evaluation.parquet", "evaluation.csv", "evaluation.md", "recommendations.parquet")


class Lineage(NamedTuple):
    """Assets that a stage reads, and those that it makes; none where nothing is known of the stage."""

    reads: list[Asset]
    writes: list[Asset]


def of(stage: str, arguments: Mapping[str, Any]) -> Lineage:
    """The lineage of one call of a stage.

    Args:
        arguments: the stage's own, by name; `home` is among them.
    """
    home: Home = arguments["home"]

    def tables(*names: str) -> list[Asset]:
        return [_asset(f"duckdb://{home.dataset}/{name}", f"{name} of {home.dataset}") for name in names]

    def fitted(protocol: str, *names: str) -> list[Asset]:
        return [
            _asset(f"model://{home.dataset}/{protocol}/{name}", f"{name} fitted on {protocol} of {home.dataset}")
            for name in names
        ]

    def edges(protocol: str) -> list[Asset]:
        return tables("curated.interactions" if protocol == "all_edges" else f"splits.{protocol}")

    match stage:
        case "ingest":
            return Lineage(_files(_raw(home, arguments["sources"])), tables("raw.events", "raw.rejects"))
        case "binarize":
            return Lineage(tables("raw.events"), tables("curated.interactions"))
        case "split":
            return Lineage(
                tables("curated.interactions"), tables(*(f"splits.{name}" for name in arguments["protocols"]))
            )
        case "diagnose":
            made = tables("diagnostics.degrees", "diagnostics.power_law_fits")
            return Lineage(tables("curated.interactions"), made)
        case "train":
            return Lineage(edges(arguments["protocol"]), fitted(arguments["protocol"], arguments["model"]))
        case "evaluate":
            protocol = arguments["protocol"]
            made = tables("evaluation.metrics", "evaluation.comparisons")
            return Lineage([*edges(protocol), *fitted(protocol, *arguments["fits"])], made)
        case "publish":
            choice = arguments.get("choice")
            read = fitted("all_edges", choice.model) if choice else []
            made = tables("published.recommendations") if choice else []
            files = _files([home.published / name for name in PUBLISHED_FILES])
            return Lineage([*tables("evaluation.metrics"), *read], [*made, *files])
    return Lineage([], [])


def _raw(home: Home, sources: Sequence[str | Path]) -> list[Path]:
    paths = [Path(source) for source in sources]
    if not paths and home.landing.is_dir():
        paths = sorted(home.landing.iterdir())
    return paths if len(paths) <= FILES_NAMED else sorted({path.parent for path in paths})


def _files(paths: Sequence[Path]) -> list[Asset]:
    return [_asset(f"file://{path.absolute()}", path.name) for path in paths]


def _asset(key: str, name: str) -> Asset:
    return Asset(key=NOT_IN_A_KEY.sub("_", key)[:KEY_LENGTH], properties=AssetProperties(name=name))
