"""The four figures beside the verdict: quality, what changed, soundness, volume; each with a word and a small line."""

from dataclasses import dataclass, field

import polars as pl
from markupsafe import Markup

from tasks.decisions import Decision
from tasks.pages import numbers
from tasks.pages.sparkline import sparkline
from tasks.report.changes import ChangesSection
from tasks.report.figures import Row
from tasks.report.verdict import Verdict, by_name


@dataclass(frozen=True)
class Tile:
    """One figure.

    Attributes:
        small: what stands beside the figure: its error, its unit.
        note: a sentence or two below.
        section: the anchor of what tells more.
        line: its last 30 nights.
    """

    label: str
    figure: str
    small: str
    note: str
    section: str
    line: Markup = field(default_factory=Markup)


def quality(found: Verdict, nights: pl.DataFrame) -> Tile:
    """The metric that judges, of what is published, and its line over the last nights."""
    metric, (value, error) = next(iter(found.row.cells.items()))
    note = f"{metric} on test users; 1 would be perfect."
    if len(nights) > 1:
        when = numbers.days(nights["night"][0], nights["night"][-1])
        gap = " A gap: a night that did not evaluate it." if nights["value"].null_count() else ""
        note = f"{metric} of what stood, {len(nights)} nights, {when}; the band is one standard error.{gap}"
    label = f"{metric} of {len(nights)} nights{_ends(nights['value'].drop_nulls().to_list(), 4)}"
    line = sparkline(nights["value"].to_list(), label, nights["standard_error"].to_list())
    return Tile("Quality", numbers.fixed(value, 4), _error(error), note, f"main-{found.row.protocol}", line)


def change(found: Verdict, changed: ChangesSection, decision: Decision | None) -> Tile:
    """What is published, now against the run before; and what it took the place of."""
    if changed.previous is None:
        return Tile("Since last night", "first run", "", "The next one is held against it.", "changes")
    sentence = changed.sentence
    if decision and decision.promoted and decision.champion not in (None, decision.challenger):
        sentence = f"It took the place of {by_name(decision.champion)}. {sentence}"
    row = found.row
    own = next((one for one in changed.judging if row and _list_of(one) == (row.protocol, row.model, row.score)), None)
    if own is None or own["change"] is None:
        return Tile("Since last night", "new", "", sentence, "changes")
    figure = numbers.fixed(own["change"], 4, signed=True)
    note = f"{own['verdict'].capitalize()}. {sentence}"
    return Tile("Since last night", figure, _error(own["standard_error"]), note, "changes")


def _list_of(row: Row) -> tuple[str, str, str]:
    return row["protocol"], row["model"], row["score"]


def soundness(contracts: pl.DataFrame) -> Tile:
    """How many rules of the contracts were met, as one count."""
    rules, broken, warnings = (int(contracts[key].sum()) for key in ("rules", "broken", "warnings"))
    if not rules:
        return Tile("Soundness", "unchecked", "", "No contract was checked.", "soundness")
    if not broken + warnings:
        return Tile("Soundness", f"all {rules:,}", "rules met", f"Of {len(contracts):,} contracts.", "soundness")
    said = [numbers.counted(broken, "broken rule")] if broken else []
    said += [numbers.counted(warnings, "warning")] if warnings else []
    figure = f"{rules - broken - warnings:,} of {rules:,}"
    return Tile("Soundness", figure, "rules met", f"{' and '.join(said)}.", "soundness")


def volume(overview: Row, nights: pl.DataFrame, days: pl.DataFrame) -> Tile:
    """What the last night brought where nights are known, else how many likes there are; as a line either way."""
    likes = f"{overview['edges']:,} likes of {overview['users']:,} users and {overview['items']:,} items"
    if len(nights):
        values, usual = nights["value"].to_list(), nights["usual"][-1]
        line = sparkline(values, f"events of {len(nights)} nights{_ends(values)}", from_zero=True)
        level = "" if usual is None else f", {numbers.fixed(usual)} are usual"
        return Tile(
            "Volume", numbers.fixed(values[-1]), "new events", f"Last night{level}. {likes} in all.", "log", line
        )
    values = days["likes"].to_list()
    line = sparkline(values, f"likes a day{_ends(values)}", from_zero=True)
    per_day = f"The line: likes a day, {numbers.days(days['day'][0], days['day'][-1])}." if len(days) else ""
    note = f"Of {overview['users']:,} users and {overview['items']:,} items. {per_day}".strip()
    return Tile("Volume", f"{overview['edges']:,}", "likes", note, "log", line)


def _error(error: float | None) -> str:
    return "" if error is None else f"± {numbers.fixed(error, 4)}"


def _ends(values: list[float], digits: int = 0) -> str:
    if not values:
        return ""
    low, high, last = (numbers.fixed(value, digits) for value in (min(values), max(values), values[-1]))
    return f", from {low} to {high}, the last {last}"
