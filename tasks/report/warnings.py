"""Collect the warnings for the top of the report, each with its section and figures. Minor issues are omitted."""

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
from oneclass.tasks.report.run_tables import Row

MIN_REJECT_SHARE = 0.001  # of all lines; below it a sentence in the text is enough
MAX_EXAMPLES = 3

# What the reader can do about a warning of each kind.
WEAK_ACTION = "Leave the model out (--models) or search its settings (flows.tune)."
RULE_ACTION = "Look at the rows that break the rule, below."
UNREAD_ACTION = "Mend the file and put it into the landing folder again."
UNUSUAL_ACTION = "If the shop had no reason for it, check the export of that day."
KEPT_ACTION = "The lists of the model before stay published; flows.promote publishes another."
REJECTS_ACTION = "The commonest reasons are below; mend the export or the data set's file."


@dataclass(frozen=True)
class RunWarning:
    """A warning: what happened, without a full stop; the anchor of its section; and what to do, as a sentence."""

    text: str
    section: str
    severe: bool = False
    action: str = ""


def collect_warnings(
    overview: Row,
    broken: list[Row],
    unusual: list[str],
    main: dict[str, list[LeaderboardRow]],
    decision: Decision | None,
    unread: Iterable[Row] = (),
    alarms: Iterable[str] = (),
) -> list[RunWarning]:
    """Collect the warnings of a run, severe ones first.

    Args:
        broken: broken rules of contracts, with samples as JSON.
        unusual: sentences on the night's figures, which replace the warnings of their rules.
        unread: files of the landing folder that were not read, with the reasons.
        alarms: what the run found damaged or wrong in the home.
    """
    weak = {sentence: rows[0].protocol for rows in main.values() for sentence in list_weaknesses(rows)}
    warnings = [
        RunWarning(text, f"main-{protocol}", severe="guessing" in text, action=WEAK_ACTION)
        for text, protocol in weak.items()
    ]
    for row in (row for row in broken if not _is_anomaly(row)):
        samples = [sample for sample in json.loads(row["samples"]) if not _is_covered(sample, weak)]
        if samples or row["samples"] == "[]":
            action = WEAK_ACTION if row["rule"] == "not_worse_than_popularity" else RULE_ACTION
            warnings.append(RunWarning(_describe_rule(row, samples), "soundness", row["severity"] == "error", action))
    warnings += [RunWarning(alarm.removesuffix("."), "soundness", severe=True) for alarm in alarms]
    warnings += [
        RunWarning(f"{file['name']} was not read: {file['reason'].removesuffix('.')}", "log", True, UNREAD_ACTION)
        for file in unread
    ]
    warnings += [
        RunWarning(f"An unusual night: {text.removesuffix('.')}", "soundness", action=UNUSUAL_ACTION)
        for text in unusual
    ]
    if decision and not decision.promoted:
        text = f"{describe_configuration(decision.challenger)} was not promoted"
        warnings.append(RunWarning(text, "models", severe=True, action=KEPT_ACTION))
    if (share := compute_reject_share(overview)) > MIN_REJECT_SHARE:
        text = f"{overview['rejects']:,} lines, {numbers.format_percent(share)} of all, could not be read"
        warnings.append(RunWarning(text, "log", share > 10 * MIN_REJECT_SHARE, REJECTS_ACTION))
    return sorted(warnings, key=lambda warning: not warning.severe)


def compute_reject_share(overview: Row) -> float:
    """Return the share of lines that could not be read."""
    lines = overview["events"] + overview["rejects"]
    return overview["rejects"] / lines if lines else 0.0


def _is_anomaly(row: Row) -> bool:
    return row["contract"] in ("operations.nights", "diagnostics.nightly_exponents") and row["severity"] == "warning"


def _is_covered(sample: Any, sentences: Iterable[str]) -> bool:
    """Whether a sentence on a weak model already covers a sample of a broken rule."""
    if not isinstance(sample, dict) or not {"model", "protocol", "metric"} <= sample.keys():
        return False
    of_model, metric = f"{sample['model']} on {sample['protocol']} ", f" {sample['metric']} "
    return any(sentence.startswith(of_model) and metric in sentence for sentence in sentences)


def _describe_rule(row: Row, samples: list[Any]) -> str:
    """Describe the rows that broke a rule, and the rule."""
    if row["rule"] == "not_worse_than_popularity" and samples:
        more = f"; and {len(samples) - MAX_EXAMPLES:,} more" if len(samples) > MAX_EXAMPLES else ""
        return "; ".join(map(_describe_weak_model, samples[:MAX_EXAMPLES])) + more
    contracts = (contract for contract in for_stage(row["stage"]) if contract.table == row["contract"])
    descriptions = {rule.name: rule.description for contract in contracts for rule in contract.rules}
    holds = descriptions.get(row["rule"], row["rule"].replace("_", " "))
    broken = describe_examples(samples) or row["observed"] or row["rule"]
    return f"{broken}. In {row['contract']} it should hold that {holds}"


def _describe_weak_model(sample: dict[str, Any]) -> str:
    value, popularity = (numbers.format_significant(sample[name], 3) for name in ("value", "popularity"))
    return (
        f"{sample['model']} is worse than popularity on {sample['protocol']}: {sample['metric']} {value} against "
        f"{popularity}"
    )


def describe_broken_rules(broken: pl.DataFrame) -> pl.DataFrame:
    """Add the samples of broken rules in words, as column `examples`."""
    examples = [describe_examples(json.loads(samples)) for samples in broken["samples"]]
    return broken.with_columns(examples=pl.Series(examples, dtype=pl.String))


def describe_examples(rows: list[Any]) -> str:
    """Describe the first rows that break a rule: the text of each, then its numbers by name."""
    rows = [row for row in rows if isinstance(row, dict)]
    more = f"; and {len(rows) - MAX_EXAMPLES:,} more" if len(rows) > MAX_EXAMPLES else ""
    return "; ".join(map(_describe_example, rows[:MAX_EXAMPLES])) + more


def _describe_example(sample: dict[str, Any]) -> str:
    numeric = {
        name: value for name, value in sample.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    names = sorted(sample, key=lambda name: name != "model")
    words = [str(sample[name]) for name in names if name not in numeric and sample[name] is not None]
    figures = [
        f"{name.replace('_', ' ')} {numbers.format_significant(value, 4, zeros=True)}"
        for name, value in numeric.items()
    ]
    return ": ".join(", ".join(part) for part in (words, figures) if part)
