"""Collect the warnings for the top of the report, each with its section and figures. Minor issues are omitted."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oneclass.data_contracts import for_stage
from oneclass.tasks.html import numbers
from oneclass.tasks.leaderboard import LeaderboardRow, list_weaknesses
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.report.headline import describe_configuration
from oneclass.tasks.report.run_tables import Row, group_rows

MIN_REJECT_SHARE = 0.001  # of all lines; below it a sentence in the text is enough
MAX_EXAMPLES = 3

# What the reader can do about a warning of each kind.
WEAK_ACTION = "Leave the model out (--models) or search its settings (flows.tune)."
RULE_ACTION = "Look at the rows of the table that break the rule."
UNREAD_ACTION = "Mend the file and put it into the landing folder again."
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
    main: Mapping[str, list[LeaderboardRow]],
    *,
    broken: Iterable[Row] = (),
    decision: Decision | None = None,
    unread: Iterable[Row] = (),
    alarms: Iterable[str] = (),
) -> list[RunWarning]:
    """Collect the warnings of a run, severe ones first.

    Args:
        broken: broken rules of contracts, with samples as JSON.
        unread: files of the landing folder that were not read, with the reasons.
        alarms: what the run found damaged, wrong or unusual.
    """
    weak = {sentence: rows[0].protocol for rows in main.values() for sentence in list_weaknesses(rows)}
    warnings = [RunWarning(text, f"main-{at}", "guessing" in text, WEAK_ACTION) for text, at in weak.items()]
    warnings += [
        RunWarning(_describe_rule(row), "soundness", row["severity"] == "error", RULE_ACTION) for row in broken
    ]
    warnings += [RunWarning(alarm.removesuffix("."), "soundness", severe=True) for alarm in alarms]
    warnings += [RunWarning(text, "log", True, UNREAD_ACTION) for text in describe_unread(unread)]
    if decision and not decision.promoted:
        text = f"{describe_configuration(decision.challenger)} was not promoted"
        warnings.append(RunWarning(text, "models", severe=True, action=KEPT_ACTION))
    lines = overview["events"] + overview["rejects"]
    share = overview["rejects"] / lines if lines else 0.0
    if share > MIN_REJECT_SHARE:
        text = f"{overview['rejects']:,} lines, {numbers.format_percent(share)} of all, could not be read"
        warnings.append(RunWarning(text, "log", share > 10 * MIN_REJECT_SHARE, REJECTS_ACTION))
    return sorted(warnings, key=lambda warning: not warning.severe)


def describe_unread(unread: Iterable[Row]) -> list[str]:
    """Describe the files that were not read, in one sentence without a full stop for equal reasons."""
    sentences = []
    for reason, files in group_rows(unread, "reason").items():
        more = f" and {len(files) - MAX_EXAMPLES} more" if len(files) > MAX_EXAMPLES else ""
        names = ", ".join(file["name"] for file in files[:MAX_EXAMPLES])
        sentences.append(f"Not read: {names}{more}: {reason.removesuffix('.')}")
    return sentences


def _describe_rule(row: Row) -> str:
    """Describe the first rows that broke a rule, and the rule."""
    contracts = (contract for contract in for_stage(row["stage"]) if contract.table == row["contract"])
    descriptions = {rule.name: rule.description for contract in contracts for rule in contract.rules}
    holds = descriptions.get(row["rule"], row["rule"].replace("_", " "))
    samples = [sample for sample in json.loads(row["samples"]) if isinstance(sample, dict)]
    more = f"; and {len(samples) - MAX_EXAMPLES:,} more" if len(samples) > MAX_EXAMPLES else ""
    examples = "; ".join(map(_describe_sample, samples[:MAX_EXAMPLES])) + more
    return f"{examples or row['observed'] or row['rule']}. In {row['contract']} it should hold that {holds}"


def _describe_sample(sample: dict[str, Any]) -> str:
    """Describe a row that breaks a rule: its texts, the model first, then its numbers by name."""
    texts, figures = [], []
    for name in sorted(sample, key=lambda name: name != "model"):
        value = sample[name]
        if isinstance(value, int | float) and not isinstance(value, bool):
            figures.append(f"{name.replace('_', ' ')} {numbers.format_significant(value, 4, zeros=True)}")
        elif value is not None:
            texts.append(str(value))
    return ": ".join(", ".join(part) for part in (texts, figures) if part)
