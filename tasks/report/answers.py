"""The six answers at the head of the page, each a sentence or two from the data."""

from dataclasses import dataclass

import polars as pl

from tasks.main_table import MainRow, weaknesses
from tasks.report.figures import Row, grouped, listed
from tasks.report.figures_degrees import law_sentence
from tasks.report.figures_intervals import named
from tasks.report.tables import text


@dataclass(frozen=True)
class Answer:
    """One question, its answer, and the section that tells more. `alarm` where somebody should look."""

    question: str
    answer: str
    section: str
    alarm: bool = False


def answers(
    overview: Row, contracts: pl.DataFrame, laws: list[Row], tables: dict[str, list[MainRow]], changes: str
) -> list[Answer]:
    """In the order of the sections; `changes` is the last one, ready made."""
    broken, warnings = (contracts[key].sum() for key in ("broken", "warnings"))
    return [
        Answer("What came in?", came_in(overview), "log", alarm=overview["rejects"] > 0),
        Answer("Was it sound?", sound(contracts), "soundness", alarm=broken + warnings > 0),
        Answer("What do the degrees look like?", _degrees(laws), "degrees-section"),
        Answer("Which model is best?", best(tables), "models", alarm=any(map(weaknesses, tables.values()))),
        Answer("How sure are we?", sure(tables), "certainty"),
        Answer("What changed since the last run?", changes, "changes"),
    ]


def came_in(overview: Row) -> str:
    files = f"{overview['files']:,} log file{'' if overview['files'] == 1 else 's'}"
    rejected = f"{overview['rejects']:,} lines could not be read" if overview["rejects"] else "no line was rejected"
    return (
        f"{overview['events']:,} events from {files}, {rejected}; {overview['edges']:,} likes of "
        f"{overview['users']:,} users and {overview['items']:,} items were kept."
    )


def sound(contracts: pl.DataFrame) -> str:
    rules, broken, warnings = (contracts[key].sum() for key in ("rules", "broken", "warnings"))
    if not rules:
        return "No contract was checked."
    if not broken + warnings:
        return f"All {rules:,} rules of {len(contracts):,} contracts were met."
    counts = ((broken, "broken"), (warnings, "not met, which is a warning"))
    parts = [f"{count:,} {word}" for count, word in counts if count]
    return f"Of {rules:,} rules, {listed(parts)}; the others were met."


def _degrees(laws: list[Row]) -> str:
    said = [law_sentence(side, of_side) for side, of_side in grouped(laws, "side").items()]
    return " ".join(said) or "There is no like, so there is no degree."


def best(tables: dict[str, list[MainRow]]) -> str:
    """The best list of each protocol by its main metric; then the models that are worse than a trivial one."""
    said = []
    for protocol, rows in tables.items():
        metric, (value, error) = next(iter(rows[0].cells.items()))
        said.append(f"On {protocol}, {named(rows[0].model, rows[0].score)}: {metric} {text(value, 'metric')}"
                    + ("" if error is None else f" ± {text(error, 'metric')}"))  # fmt: skip
    said += [sentence for rows in tables.values() for sentence in weaknesses(rows)]
    return ". ".join(said) + "." if said else "No user had anything held out, so nothing was evaluated."


def sure(tables: dict[str, list[MainRow]]) -> str:
    """Which other models cannot be told from the best."""
    said = []
    for protocol, rows in tables.items():
        level = list(dict.fromkeys(row.model for row in rows if row.standing == "level" and row.model != rows[0].model))
        verdict = f"{listed(level)} cannot be told from the best" if level else "the best model stands alone"
        said.append(f"On {protocol}, over {rows[0].users:,} users, {verdict}")
    return ". ".join(said) + "." if said else "There is nothing to be sure of."
