"""The verdict, the page's first words: what is published and how good it is, and which model is best by which measure."""

from dataclasses import dataclass

from tasks.decisions import Decision
from tasks.main_table import MainRow
from tasks.pages import numbers
from tasks.pages.numbers import SPACE
from tasks.protocols import PROTOCOLS
from tasks.report.figures import Row, listed

CHOSEN = "A run chooses on validation users, never on these."


@dataclass(frozen=True)
class Verdict:
    """What is published, in a word, a figure and three sentences.

    Attributes:
        label: what `name` is: `Published`, or `Best` where nothing is recommended.
        name: model and score.
        row: of the main table; None where the run did not evaluate it.
        lead: by how much it leads, and over whom.
        why: promoted or kept, and the reason.
        since: since when it stands.
    """

    label: str
    name: str
    row: MainRow | None
    lead: str
    why: str = ""
    since: str = ""


def named(model: str, score: str) -> str:
    """A ranked list in words."""
    return model if score == "score" else f"{model} ({score})"


def by_name(of_list: str) -> str:
    """The same of what a decision calls `model/score`."""
    return named(*of_list.split("/", 1)) if "/" in of_list else of_list


def verdict(
    main: dict[str, list[MainRow]], leads: list[Row], standing: Row | None, decision: Decision | None
) -> Verdict:
    """The verdict by the first protocol's first metric.

    Args:
        leads: of each protocol's best list over every other, as `sql/report/against_best.sql` has them.
        standing: what is published; None where nothing is, or where this run does not speak of it.
        decision: of this run; None where it recommended nothing.
    """
    rows = next(iter(main.values()), [])
    of_protocol = [lead for lead in leads if rows and lead["protocol"] == rows[0].protocol]
    if standing is None or decision is None:
        if not rows:
            return Verdict("Published", "nothing", None, "No user had anything held out, so nothing was evaluated.")
        best = named(rows[0].model, rows[0].score)
        return Verdict("Best", best, rows[0], lead_of(rows, 0, of_protocol), "This run recommends nothing to anybody.")
    place = next((at for at, row in enumerate(rows) if f"{row.model}/{row.score}" == standing["list"]), None)
    lead = lead_of(rows, place, of_protocol) if place is not None else "This run did not evaluate it."
    row = None if place is None else rows[place]
    return Verdict("Published", by_name(standing["list"]), row, lead, _why(decision), _since(standing))


def lead_of(rows: list[MainRow], place: int, leads: list[Row]) -> str:
    """Where the list at a place of the main table stands: over whom it leads, or behind whom it is."""
    over = f"over {rows[0].users:,} test users ({PROTOCOLS[rows[0].protocol].title.lower()})"
    by_list = {(lead["model"], lead["score"]): lead for lead in leads}
    if place:
        own = by_list.get((rows[place].model, rows[place].score))
        behind = "" if own is None else f": {_difference(own, ' behind it')}"
        where = "Level with" if rows[place].standing == "level" else "Significantly worse than"
        return f"{where} {named(rows[0].model, rows[0].score)}, the best of {len(rows)} lists{behind}, {over}. {CHOSEN}"
    said = [f"The best of {numbers.counted(len(rows), 'list')} {over}"]
    worse = next((row for row in rows[1:] if row.standing != "level"), None)
    if worse and (beyond := by_list.get((worse.model, worse.score))):
        next_best = "the next" if worse is rows[1] else "the first that it can be told from"
        said.append(f"It leads {named(worse.model, worse.score)}, {next_best}, by {_difference(beyond, '')}")
    if level := level_with(rows):
        said.append(f"{listed(level)} cannot be told from it")
    return ". ".join(said) + "."


def level_with(rows: list[MainRow]) -> list[str]:
    """The other models that cannot be told from the best, each once."""
    return list(dict.fromkeys(row.model for row in rows if row.standing == "level" and row.model != rows[0].model))


def best(rows: list[MainRow]) -> str:
    """Which model is best by the metric that judges a protocol: one answer, with its measure."""
    metric, (value, error) = next(iter(rows[0].cells.items()))
    sure = "" if error is None else f"{SPACE}±{SPACE}{numbers.fixed(error, 4)}"
    level = level_with(rows)
    others = (
        f"; {listed(level)} cannot be told from it" if level else "; no other model is level with it" * (len(rows) > 1)
    )
    return f"{named(rows[0].model, rows[0].score)}, by {metric}: {numbers.fixed(value, 4)}{sure}{others}."


def _difference(lead: Row, words: str) -> str:
    error = "" if lead["standard_error"] is None else f"{SPACE}±{SPACE}{numbers.fixed(lead['standard_error'], 4)}"
    chance = lead["p_value"]
    likely = "" if chance is None else f" (p{SPACE}{'' if chance <= 0.001 else f'={SPACE}'}{numbers.p_value(chance)})"
    return f"{numbers.fixed(lead['lead'], 4)}{error}{words}{likely}"


def _why(decision: Decision) -> str:
    reason = numbers.true_minus(decision.reason)
    if decision.promoted:
        return f"Promoted: {reason}." if reason else "Promoted."
    return f"Kept, and {by_name(decision.challenger)} not promoted: {reason}."


def _since(standing: Row) -> str:
    made = f"Its recommendations were made on {numbers.minute(standing['made_at'])}"
    if standing["publications"] < 2:
        return f"{made}."
    return f"{made}, the last of {standing['publications']:,} in a row by it since {numbers.minute(standing['since'])}."
