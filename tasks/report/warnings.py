"""What somebody should look at, in proportion: each alarm has what it is about, and a figure; a few bad lines are none."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from oneclass.data_contracts import for_stage
from oneclass.tasks.html import numbers
from oneclass.tasks.leaderboard import LeaderboardRow, list_weaknesses
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.report.headline import describe_configuration
from oneclass.tasks.report.plotting import Row

MIN_REJECT_SHARE = 0.001  # of all lines; where fewer could not be read, a footnote says so
MAX_EXAMPLES = 3


@dataclass(frozen=True)
class RunWarning:
    """One thing to look at; a grave one is more than a warning."""

    text: str
    section: str
    severe: bool = False


def collect_warnings(
    overview: Row,
    broken: list[Row],
    unusual: list[str],
    main: dict[str, list[LeaderboardRow]],
    decision: Decision | None,
) -> list[RunWarning]:
    """The gravest first.

    Args:
        broken: rules that the run did not meet, with samples as JSON.
        unusual: figures of the night, in words; the rules behind them are told by these.
    """
    weak = {one: rows[0].protocol for rows in main.values() for one in list_weaknesses(rows)}
    found = [RunWarning(one, f"main-{protocol}", severe="guessing" in one) for one, protocol in weak.items()]
    for row in (row for row in broken if not _anomaly_warning(row)):
        samples = [one for one in json.loads(row["samples"]) if not _is_covered(one, weak)]
        if samples or row["samples"] == "[]":
            found.append(RunWarning(_rule_warning(row, samples), "soundness", row["severity"] == "error"))
    found += [RunWarning(f"An unusual night: {one}", "soundness") for one in unusual]
    if decision and not decision.promoted:
        found.append(
            RunWarning(f"{describe_configuration(decision.challenger)} was not promoted", "models", severe=True)
        )
    if (share := compute_reject_share(overview)) > MIN_REJECT_SHARE:
        lines = f"{overview['rejects']:,} lines, {numbers.format_percent(share)} of all, could not be read"
        found.append(RunWarning(lines, "log", severe=share > 10 * MIN_REJECT_SHARE))
    return sorted(found, key=lambda alarm: not alarm.severe)


def compute_reject_share(overview: Row) -> float:
    """Of all lines read, the share that could not be."""
    lines = overview["events"] + overview["rejects"]
    return overview["rejects"] / lines if lines else 0.0


def _anomaly_warning(row: Row) -> bool:
    return row["contract"] in ("operations.nights", "diagnostics.nightly_exponents") and row["severity"] == "warning"


def _is_covered(sample: Any, sentences: Iterable[str]) -> bool:
    """Whether a row that breaks a rule is what a sentence on a weak model says already."""
    if not isinstance(sample, dict) or not {"model", "protocol", "metric"} <= sample.keys():
        return False
    of_model, metric = f"{sample['model']} on {sample['protocol']} ", f" {sample['metric']} "
    return any(one.startswith(of_model) and metric in one for one in sentences)


def _rule_warning(row: Row, samples: list[Any]) -> str:
    """The rows that broke a rule, which model, which metric, which figure; and what should hold."""
    rules = (rule for one in for_stage(row["stage"]) if one.table == row["contract"] for rule in one.rules)
    holds = next((rule.description for rule in rules if rule.name == row["rule"]), row["rule"].replace("_", " "))
    broken = describe_examples(samples) or row["observed"] or row["rule"]
    return f"{broken}. In {row['contract']} it should hold that {holds}"


def describe_broken_rules(broken: pl.DataFrame) -> pl.DataFrame:
    """The rows of broken rules with their samples in words, `told`."""
    words = [describe_examples(json.loads(samples)) for samples in broken["samples"]]
    return broken.with_columns(told=pl.Series(words, dtype=pl.String))


def describe_examples(rows: list[Any]) -> str:
    """The first rows that break a rule: of each its words, then its figures by name."""
    rows = [row for row in rows if isinstance(row, dict)]
    more = f"; and {len(rows) - MAX_EXAMPLES:,} more" if len(rows) > MAX_EXAMPLES else ""
    return "; ".join(map(_describe_example, rows[:MAX_EXAMPLES])) + more


def _describe_example(sample: dict[str, Any]) -> str:
    numeric = {name: one for name, one in sample.items() if isinstance(one, int | float) and not isinstance(one, bool)}
    named = sorted(sample, key=lambda name: name != "model")
    words = [str(sample[name]) for name in named if name not in numeric and sample[name] is not None]
    figures = [
        f"{name.replace('_', ' ')} {numbers.format_significant(one, 4, zeros=True)}" for name, one in numeric.items()
    ]
    return ": ".join(", ".join(part) for part in (words, figures) if part)
