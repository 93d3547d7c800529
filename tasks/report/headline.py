"""Build the headline of the report, its KPI cards, and the sentences on the best model of each protocol."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl
from markupsafe import Markup

from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks.html import numbers
from oneclass.tasks.html.numbers import NO_BREAK_SPACE
from oneclass.tasks.html.sparkline import draw_sparkline
from oneclass.tasks.leaderboard import FOLDS_NOTE, LeaderboardRow
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.protocols import PROTOCOLS, describe_folds
from oneclass.tasks.report.changes import RunDiffSection
from oneclass.tasks.report.run_tables import Row, join_words

NOTABLE_AGE = timedelta(days=1)  # from which the age of what is published is stated
MODEL_CHOICE_NOTE = "A run chooses on validation users, never on these."


@dataclass(frozen=True)
class Headline:
    """The published model and its quality.

    Attributes:
        label: `Published`, or `Best` if the run recommends nothing.
        name: model and score.
        row: its row of the leaderboard; None if the run did not evaluate it.
        lead: by how much it leads, and over which lists.
        why: whether it was promoted or kept, and the reason.
        since: since when it is published.
        gain: the main metric against popularity, such as `+48 % over popularity`; empty if that is unknown.
    """

    label: str
    name: str
    row: LeaderboardRow | None
    lead: str
    why: str = ""
    since: str = ""
    gain: str = ""


def describe_ranked_list(model: str, score: str) -> str:
    """Format a model and its score, which is omitted if it is the only one."""
    return model if score == "score" else f"{model} ({score})"


def describe_configuration(of_list: str) -> str:
    """Format a decision's `model/score`."""
    return describe_ranked_list(*of_list.split("/", 1)) if "/" in of_list else of_list


def build_headline(
    main: dict[str, list[LeaderboardRow]], standing: Row | None, decision: Decision | None, started_at: datetime
) -> Headline:
    """Build the headline by the first protocol's main metric.

    Args:
        standing: the publication; None if there is none, or this run did not decide on it.
        started_at: of the run, in UTC.
        decision: this run's promotion decision; None if it recommended nothing.
    """
    rows = next(iter(main.values()), [])
    if standing is None or decision is None:
        if not rows:
            return Headline("Published", "nothing", None, "No user had anything held out, so nothing was evaluated.")
        best = describe_ranked_list(rows[0].model, rows[0].score)
        why = "This run recommends nothing to anybody."
        return Headline("Best", best, rows[0], describe_lead(rows, 0), why, gain=_format_gain(rows, rows[0]))
    index = next((i for i, row in enumerate(rows) if f"{row.model}/{row.score}" == standing["list"]), None)
    lead = describe_lead(rows, index) if index is not None else "This run did not evaluate it."
    row = None if index is None else rows[index]
    return Headline(
        "Published",
        describe_configuration(standing["list"]),
        row,
        lead,
        _promotion_reason(decision),
        _published_since(standing, started_at),
        _format_gain(rows, row),
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
    folds = rows[0].folds
    over = f"over {rows[0].users:,} test users{describe_folds(folds)} ({PROTOCOLS[rows[0].protocol].title.lower()})"
    if index:
        own = rows[index].against_best
        behind = "" if own is None else f": {_describe_difference(own, ' behind it')}"
        where = "Level with" if rows[index].standing == "level" else "Significantly worse than"
        return (
            f"{where} {describe_ranked_list(rows[0].model, rows[0].score)}, the best of {len(rows)} lists{behind}, "
            f"{over}. {FOLDS_NOTE if folds > 1 else MODEL_CHOICE_NOTE}"
        )
    sentences = [f"The best of {numbers.format_count(len(rows), 'list')} {over}"]
    worse = next((row for row in rows[1:] if row.standing != "level"), None)
    if worse and worse.against_best:
        next_best = "the next" if worse is rows[1] else "the first that it can be told from"
        sentences.append(
            f"It leads {describe_ranked_list(worse.model, worse.score)}, {next_best}, by "
            f"{_describe_difference(worse.against_best, '')}"
        )
    if level := find_tied_models(rows):
        sentences.append(f"{join_words(level)} cannot be told from it")
    return ". ".join(sentences) + "." + (f" {FOLDS_NOTE}" if folds > 1 else "")


def find_tied_models(rows: list[LeaderboardRow]) -> list[str]:
    """List the other models that cannot be told from the best, without repetition."""
    return list(dict.fromkeys(row.model for row in rows if row.standing == "level" and row.model != rows[0].model))


def describe_best(rows: list[LeaderboardRow]) -> str:
    """Describe the best model by a protocol's main metric, with its value and the models level with it."""
    metric, (value, error) = next(iter(rows[0].cells.items()))
    shown = NO_BREAK_SPACE.join(filter(None, numbers.format_with_error(value, error)))
    level = find_tied_models(rows)
    others = (
        f"; {join_words(level)} cannot be told from it"
        if level
        else "; no other model is level with it" * (len(rows) > 1)
    )
    best = describe_ranked_list(rows[0].model, rows[0].score)
    return f"{best}, by {metric}: {shown}{others}."


def _describe_difference(compared: Comparison, words: str) -> str:
    error = (
        ""
        if compared.standard_error is None
        else f"{NO_BREAK_SPACE}±{NO_BREAK_SPACE}{numbers.format_fixed(compared.standard_error, 4)}"
    )
    chance = compared.p_value
    likely = (
        ""
        if chance is None
        else f" (p{NO_BREAK_SPACE}{'' if chance <= 0.001 else f'={NO_BREAK_SPACE}'}{numbers.format_p_value(chance)})"
    )
    return f"{numbers.format_fixed(-compared.difference, 4)}{error}{words}{likely}"


def _promotion_reason(decision: Decision) -> str:
    reason = numbers.replace_minus(decision.reason)
    if decision.promoted:
        done = "Refitted" if decision.is_refit else "Promoted"
        return f"{done}: {reason}." if reason else f"{done}."
    return f"Kept, and {describe_configuration(decision.challenger)} not promoted: {reason}."


def _published_since(standing: Row, started_at: datetime) -> str:
    age = started_at - standing["made_at"]
    made = f"Its recommendations were made on {numbers.format_minute(standing['made_at'])}"
    if age >= NOTABLE_AGE:
        made += f", {numbers.format_time_span(age)} before this run"
    if standing["publications"] < 2:
        return f"{made}."
    since = numbers.format_minute(standing["since"])
    return f"{made}, the last of {standing['publications']:,} in a row by it since {since}."


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
    note = f"{metric} on test users; 1 would be perfect."
    lists = nights["list"].to_list()
    promotions = [night for night in range(1, len(lists)) if lists[night] != lists[night - 1]]
    if len(nights) > 1:
        when = numbers.format_day_range(nights["night"][0], nights["night"][-1])
        gap = " A gap: a night that did not evaluate it." if nights["value"].null_count() else ""
        note = f"{metric} of what stood, {len(nights)} nights, {when}; the band is one standard error.{gap}"
        note += " An upright line: another model was promoted." if promotions else ""
    label = f"{metric} of {len(nights)} nights{_format_first_and_last(nights['value'].drop_nulls().to_list(), 4)}"
    line = draw_sparkline(nights["value"].to_list(), label, nights["standard_error"].to_list(), marks=promotions)
    return KpiCard("Quality", *numbers.format_with_error(value, error), note, f"main-{row.protocol}", line)


def build_change_card(headline: Headline, changed: RunDiffSection, decision: Decision | None) -> KpiCard:
    """Build the card of the change in the main metric since the previous run, and of the replaced model."""
    if changed.previous is None:
        return KpiCard("Since last night", "first run", "", "The next one is compared with it.", "changes")
    sentence = changed.summary
    if decision and decision.promoted and decision.champion not in (None, decision.challenger):
        sentence = f"It took the place of {describe_configuration(decision.champion)}. {sentence}"
    row = headline.row
    own = next(
        (
            change
            for change in changed.main_metrics
            if row and (change["protocol"], change["model"], change["score"]) == (row.protocol, row.model, row.score)
        ),
        None,
    )
    if own is None or own["change"] is None:
        return KpiCard("Since last night", "new", "", sentence, "changes")
    figure, error = numbers.format_with_error(own["change"], own["standard_error"])
    figure = f"+{figure}" if own["change"] > 0 else figure
    note = f"{own['verdict'].capitalize()}. {sentence}"
    return KpiCard("Since last night", figure, error, note, "changes")


def build_contracts_card(contracts: pl.DataFrame) -> KpiCard:
    """Build the card of the number of contract rules met."""
    rules, broken, warnings = (int(contracts[key].sum()) for key in ("rules", "broken", "warnings"))
    if not rules:
        return KpiCard("Soundness", "unchecked", "", "No contract was checked.", "soundness")
    if not broken + warnings:
        return KpiCard("Soundness", f"all {rules:,}", "rules met", f"Of {len(contracts):,} contracts.", "soundness")
    sentences = [numbers.format_count(broken, "broken rule")] if broken else []
    sentences += [numbers.format_count(warnings, "warning")] if warnings else []
    figure = f"{rules - broken - warnings:,} of {rules:,}"
    return KpiCard("Soundness", figure, "rules met", f"{' and '.join(sentences)}.", "soundness")


def build_volume_card(overview: Row, nights: pl.DataFrame, days: pl.DataFrame) -> KpiCard:
    """Build the card of the last night's events, or of the likes if no nights are recorded."""
    likes = f"{overview['edges']:,} likes of {overview['users']:,} users and {overview['items']:,} items"
    if len(nights):
        values, usual = nights["value"].to_list(), nights["usual"][-1]
        line = draw_sparkline(values, f"events of {len(nights)} nights{_format_first_and_last(values)}", from_zero=True)
        level = "" if usual is None else f", {numbers.format_fixed(usual)} are usual"
        return KpiCard(
            "Volume", numbers.format_fixed(values[-1]), "new events", f"Last night{level}. {likes} in all.", "log", line
        )
    values = days["likes"].to_list()
    line = draw_sparkline(values, f"likes a day{_format_first_and_last(values)}", from_zero=True)
    per_day = (
        f"The line: likes a day, {numbers.format_day_range(days['day'][0], days['day'][-1])}." if len(days) else ""
    )
    note = f"Of {overview['users']:,} users and {overview['items']:,} items. {per_day}".strip()
    return KpiCard("Volume", f"{overview['edges']:,}", "likes", note, "log", line)


def _format_first_and_last(values: list[float], digits: int = 0) -> str:
    if not values:
        return ""
    low, high, last = (numbers.format_fixed(value, digits) for value in (min(values), max(values), values[-1]))
    return f", from {low} to {high}, the last {last}"
