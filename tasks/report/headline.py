"""Build the first screen of the report: headline, KPI cards, warnings, and sentences on the best of each protocol."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import polars as pl
from markupsafe import Markup

from oneclass.data_contracts import for_stage
from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks import leaderboard
from oneclass.tasks.html import numbers
from oneclass.tasks.html.numbers import NO_BREAK_SPACE, format_list
from oneclass.tasks.html.templates import draw_sparkline
from oneclass.tasks.leaderboard import FOLDS_NOTE, LeaderboardRow
from oneclass.tasks.protocols import PROTOCOLS, describe_folds, find_deciding_protocol
from oneclass.tasks.report.tables import Row, RunTables, group_rows, join_words
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.publications import Decision, load_decisions

NOTABLE_AGE = timedelta(days=1)  # from which the age of what is published is stated
MODEL_CHOICE_NOTE = "A run chooses on validation users, never on these."


@dataclass(frozen=True)
class Headline:
    """The published model and its quality, by the protocol that decided.

    Attributes:
        label: `Published`, or `Best` if the run recommends nothing.
        name: model and score.
        row: its row of the leaderboard; None if the run did not evaluate it.
        lead: by how much it leads, and over which lists.
        why: whether it was promoted or kept, and the reason.
        since: when it was made.
        gain: the main metric against popularity, such as `+48 % over popularity`; empty if that is unknown.
        decision: of this run; None if it recommended nothing.
    """

    label: str
    name: str
    row: LeaderboardRow | None
    lead: str
    why: str = ""
    since: str = ""
    gain: str = ""
    decision: Decision | None = None


def describe_configuration(of_list: str) -> str:
    """Format a decision's `model/score`."""
    return format_list(*of_list.split("/", 1)) if "/" in of_list else of_list


def load_leaderboards(tables: RunTables) -> dict[str, list[LeaderboardRow]]:
    """Load the leaderboards by protocol, first that of the protocol that decided what is published."""
    main = leaderboard.group_by_protocol(leaderboard.load_leaderboard(tables.connection, tables.run_id))
    deciding = find_deciding_protocol(tables.connection, tables.run_id)
    return {protocol: main[protocol] for protocol in sorted(main, key=lambda one: one != deciding)}


def load_headline(tables: RunTables, main: dict[str, list[LeaderboardRow]], started_at: datetime) -> Headline:
    """Load what a run that began at `started_at` decided, by its leaderboards."""
    decision = next(iter(load_decisions(tables.connection, tables.run_id)), None)
    promoted = "select challenger as list, decided_at as made_at from operations.promotions where promoted"
    found = warehouse.query(tables.connection, f"{promoted} order by rowid desc limit 1").to_dicts()
    return build_headline(next(iter(main.values()), []), next(iter(found), None), decision, started_at)


def build_headline(
    rows: list[LeaderboardRow], standing: Row | None, decision: Decision | None, started_at: datetime
) -> Headline:
    """Build the headline by the first metric of the protocol that decided.

    Args:
        rows: of that protocol; empty if nothing was evaluated.
        standing: the publication; None if there is none, or this run did not decide on it.
        decision: this run's promotion decision; None if it recommended nothing.
        started_at: of the run, in UTC.
    """
    if standing is None or decision is None:
        if not rows:
            lead = "No user had anything held out, so nothing was evaluated."
            return Headline("Published", "nothing", None, lead, decision=decision)
        best, why = format_list(rows[0].model, rows[0].score), "This run recommends nothing to anybody."
        lead, gain = describe_lead(rows, 0), _format_gain(rows, rows[0])
        return Headline("Best", best, rows[0], lead, why, gain=gain, decision=decision)
    index = next((i for i, row in enumerate(rows) if f"{row.model}/{row.score}" == standing["list"]), None)
    row = None if index is None else rows[index]
    return Headline(
        "Published",
        describe_configuration(standing["list"]),
        row,
        "This run did not evaluate it." if index is None else describe_lead(rows, index),
        _describe_decision(decision),
        _published_since(standing, started_at),
        _format_gain(rows, row),
        decision,
    )


def _format_gain(rows: list[LeaderboardRow], row: LeaderboardRow | None) -> str:
    """Format by how much a row's main metric is above or below popularity's, in per cent of that."""
    baseline = next((other for other in rows if other.model == "popularity"), None)
    if row is None or baseline is None or row.model == "popularity":
        return ""
    value, popularity = (next(iter(of.cells.values()))[0] for of in (row, baseline))
    if not popularity:
        return ""
    percent = 100 * (value / popularity - 1)
    if percent < 0:
        return f"{numbers.format_fixed(-percent)}{NO_BREAK_SPACE}% below popularity"
    return f"{numbers.format_fixed(percent, signed=True)}{NO_BREAK_SPACE}% over popularity"


def describe_lead(rows: list[LeaderboardRow], index: int) -> str:
    """Describe which lists row `index` of the leaderboard leads, or how far it is behind the best."""
    best, folds, own = format_list(rows[0].model, rows[0].score), rows[0].folds, rows[index].against_best
    over = f"over {rows[0].users:,} test users{describe_folds(folds)} ({PROTOCOLS[rows[0].protocol].title.lower()})"
    note = FOLDS_NOTE if folds > 1 else MODEL_CHOICE_NOTE
    if index:
        behind = "" if own is None else f", {_describe_difference(own)} behind it"
        where = "Level with" if rows[index].standing == "level" else "Significantly worse than"
        return f"{where} {best}, the best of {len(rows)} lists{behind}, {over}. {note}"
    sentences = [f"The best of {numbers.format_count(len(rows), 'list')} {over}"]
    worse = next((row for row in rows if row.standing == "" and row.against_best), None)
    if worse and worse.against_best:
        other = format_list(worse.model, worse.score)
        sentences.append(f"It is surely better than {other}, by {_describe_difference(worse.against_best)}")
    if level := find_tied_models(rows):
        sentences.append(f"{join_words(level)} cannot be told from it")
    return f"{'. '.join(sentences)}. {note}"


def find_tied_models(rows: list[LeaderboardRow]) -> list[str]:
    """List the other models that cannot be told from the best, without repetition."""
    return list(dict.fromkeys(row.model for row in rows if row.standing == "level" and row.model != rows[0].model))


def describe_best(rows: list[LeaderboardRow]) -> str:
    """Describe the best model by a protocol's main metric, with its value and the models level with it."""
    metric, (value, error) = next(iter(rows[0].cells.items()))
    shown = NO_BREAK_SPACE.join(filter(None, numbers.format_with_error(value, error)))
    level = find_tied_models(rows)
    others = f"; {join_words(level)} cannot be told from it" if level else ""
    return f"{format_list(rows[0].model, rows[0].score)}, by {metric}: {shown}{others}."


def _describe_difference(compared: Comparison) -> str:
    """Describe by how much a list is behind the best one, with its error and p-value."""
    error, chance = compared.standard_error, compared.p_value
    text = numbers.format_fixed(-compared.difference, 4)
    text += "" if error is None else f" ± {numbers.format_fixed(error, 4)}"
    if chance is not None:
        text += f" (p {'' if chance <= 0.001 else '= '}{numbers.format_p_value(chance)})"
    return text.replace(" ", NO_BREAK_SPACE)


def _describe_decision(decision: Decision) -> str:
    """Describe a decision for a shop: what its customers see now, and why."""
    reason = f"{decision.reason[:1].upper()}{decision.reason[1:]}." if decision.reason else ""
    if not decision.promoted:
        challenger = describe_configuration(decision.challenger)
        return f"{describe_configuration(decision.champion or '')} stays; {challenger} was not promoted. {reason}"
    if decision.champion is None or decision.is_refit:
        return reason
    return f"It takes the place of {describe_configuration(decision.champion)}. {reason}"


def _published_since(standing: Row, started_at: datetime) -> str:
    age = started_at - standing["made_at"]
    before = f", {numbers.format_count(age.days, 'day')} before this run" if age >= NOTABLE_AGE else ""
    return f"Its recommendations were made on {numbers.format_minute(standing['made_at'])}{before}."


@dataclass(frozen=True)
class KpiCard:
    """A card with one figure.

    Attributes:
        small: text beside the figure: its error or unit.
        note: one or two sentences below.
        section: anchor of the section with details.
        line: sparkline of the last 30 nights.
    """

    label: str
    figure: str
    small: str
    note: str
    section: str
    line: Markup = field(default_factory=Markup)


def build_quality_card(row: LeaderboardRow, nights: pl.DataFrame) -> KpiCard:
    """Build the card of the published model's main metric, with its sparkline over the last nights."""
    metric, (value, error) = next(iter(row.cells.items()))
    note = f"{metric} on test users ({PROTOCOLS[row.protocol].title.lower()}); 1 would be perfect."
    lists = nights["list"].to_list()
    promotions = [night for night in range(1, len(lists)) if lists[night] != lists[night - 1]]
    if len(nights) > 1:
        when = f"{nights['night'][0]} to {nights['night'][-1]}"
        note += f" The line: what stood, {len(nights)} nights, {when}; the band is one standard error."
        note += " A gap: a night that did not evaluate it." if nights["value"].null_count() else ""
        note += " An upright line: another model was promoted." if promotions else ""
    label = f"{metric} of {len(nights)} nights{_format_first_and_last(nights['value'].drop_nulls().to_list(), 4)}"
    line = draw_sparkline(nights["value"].to_list(), label, nights["standard_error"].to_list(), marks=promotions)
    return KpiCard("Quality", *numbers.format_with_error(value, error), note, f"main-{row.protocol}", line)


def build_contracts_card(contracts: Sequence[Row]) -> KpiCard:
    """Build the card of the number of contract rules met."""
    rules, broken, warnings = (sum(row[key] for row in contracts) for key in ("rules", "broken", "warnings"))
    if not rules:
        return KpiCard("Soundness", "no rule", "checked", "No contract was checked.", "soundness")
    if not broken + warnings:
        return KpiCard("Soundness", f"all {rules:,}", "rules met", f"Of {len(contracts):,} contracts.", "soundness")
    counts = ((broken, "broken rule"), (warnings, "warning"))
    note = " and ".join(numbers.format_count(count, thing) for count, thing in counts if count)
    return KpiCard("Soundness", f"{rules - broken - warnings:,} of {rules:,}", "rules met", f"{note}.", "soundness")


def build_volume_card(overview: Row, nights: pl.DataFrame) -> KpiCard:
    """Build the card of the events that this run read, with the line of the last nights."""
    read, files = overview["new_events"], numbers.format_count(overview["new_files"], "log file")
    values, usual = nights["value"].to_list(), nights["usual"][-1] if len(nights) else None
    note = f"From {files}. " if read else ""
    note += "" if usual is None else f"{numbers.format_fixed(usual)} a night are usual. "
    note += f"{overview['likes']:,} likes of {overview['users']:,} users and {overview['items']:,} items in all."
    line = draw_sparkline(values, f"events of {len(nights)} nights{_format_first_and_last(values)}", from_zero=True)
    return KpiCard("This night", f"{read:,}" if read else "No", "new events", note, "log", line)


def _format_first_and_last(values: list[float], digits: int = 0) -> str:
    if not values:
        return ""
    low, high, last = (numbers.format_fixed(value, digits) for value in (min(values), max(values), values[-1]))
    return f", from {low} to {high}, the last {last}"


MIN_REJECT_SHARE = 0.001  # of all lines; below it a sentence in the text is enough
MAX_EXAMPLES = 3

# What the reader can do about a warning of each kind.
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
    warnings = [RunWarning(_describe_rule(row), "soundness", row["severity"] == "error", RULE_ACTION) for row in broken]
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
