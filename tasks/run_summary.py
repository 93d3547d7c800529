"""Describe how a run ended, once for all who read it: a notification of five lines, and a summary in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import leaderboard
from oneclass.tasks.errors import ModelsFailed, OneclassError
from oneclass.tasks.html.numbers import NO_BREAK_SPACE
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.report.headline import describe_unread, load_headline, load_leaderboards
from oneclass.tasks.report.tables import RunTables
from oneclass.tasks.stores import publications, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things, truncate

MAX_LINES = 5  # of a notification
MAX_LINE_LENGTH = 400


@dataclass(frozen=True)
class RunDescription:
    """How a run ended.

    Attributes:
        state: as `notifications.send_notifications` takes it.
        headline: what is published now.
        problems: a sentence on each thing that a person should look at, the gravest first.
        facts: sentences on data and pages.
        details: further sections in Markdown.
    """

    state: str
    headline: str
    problems: Sequence[str]
    facts: Sequence[str]
    details: str = ""

    @property
    def text(self) -> str:
        """The lines of a notification."""
        room = MAX_LINES - 1 - len(self.facts)
        told = [truncate(problem.strip().partition("\n")[0], MAX_LINE_LENGTH) for problem in self.problems[:room]]
        if more := len(self.problems) - len(told):
            told[-1] += f" And {more} more."
        return "\n".join([self.headline, *told, *self.facts])

    @property
    def markdown(self) -> str:
        """The summary of the run's page in Prefect."""
        bullets = [f"- **{problem}**" for problem in self.problems] + [f"- {fact}" for fact in self.facts]
        return "\n\n".join(filter(None, [f"# {self.headline}", "\n".join(bullets), self.details]))


def describe_success(
    home: Home,
    run_id: str,
    *,
    report: str,
    late: str = "",
    max_age: float | None = None,
    error: ModelsFailed | None = None,
) -> RunDescription:
    """Describe a run that came to its end.

    Args:
        report: the address or path of the report.
        late: its delay, in words, if it started late.
        max_age: the setting `publish.max_age`, in days.
        error: the models that failed, if any.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        tables = RunTables(connection, run_id)
        [overview] = tables.as_rows("overview")
        unread, alarms = tables.as_rows("unread_files"), runs.load_alarms(connection, run_id)
        main = load_leaderboards(tables)
        headline = load_headline(tables, main, overview["started_at"])
    row, decision, age = headline.row, headline.decision, publications.find_age(home)
    judged = f" ({PROTOCOLS[row.protocol].title.lower()})" if row and headline.gain else ""
    is_stale = age is not None and max_age is not None and age > timedelta(days=max_age)
    is_refused = decision is not None and not decision.promoted
    problems = {
        "partly failed": [f"Some models failed: {error}"] if error else [],
        "alarm": [f"Alarm: {alarm}." for alarm in alarms],
        "stale": [f"What is published is {_describe_age(home)}, more than publish.max_age."] if is_stale else [],
        "late": [f"It began {late} after it was due."] if late else [],
        "files unread": [f"{text}." for text in describe_unread(unread)],
        "completed": [headline.why] if is_refused else [],
    }
    what = ", ".join(filter(None, [f"{headline.label}: {headline.name}", headline.gain])) + judged
    return RunDescription(
        next((state for state, found in problems.items() if found), "completed"),
        f"{home.dataset}: {what}".replace(NO_BREAK_SPACE, " "),
        [problem for found in problems.values() for problem in found],
        [_describe_data(overview), report],
        leaderboard.format_markdown([row for rows in main.values() for row in rows], "Evaluation"),
    )


def describe_failure(home: Home, flow: str, error: Exception) -> RunDescription:
    """Describe a failed run: the error that stopped it, with any broken rules."""
    message = str(error) if isinstance(error, OneclassError | ContractBroken) else f"{type(error).__name__}: {error}"
    age = _describe_age(home)
    standing = f"the published lists stay, {age}" if age else "nothing is published"
    return RunDescription(
        "failed",
        f"{home.dataset}: {flow} failed; {standing}",
        [line for line in message.splitlines() if line.strip()],
        ["The same run, started again, continues from the stage that failed."],
        f"home `{home.folder.resolve()}`",
    )


def _describe_age(home: Home) -> str:
    age = publications.find_age(home)
    return f"{format_duration(age.total_seconds())} old" if age else ""


def _describe_data(overview: dict[str, Any]) -> str:
    likes, users, items = (count_things(overview[f"{noun}s"], noun) for noun in ("like", "user", "item"))
    files = count_things(overview["new_files"], "new file")
    changed = f", {overview['changed_files']:,} of them changed" if overview["changed_files"] else ""
    events = count_things(overview["new_events"], "event")
    return f"{files}{changed} with {events}; in all {likes} of {users} for {items}."
