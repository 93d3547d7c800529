"""Explain why a log has too many rejects, with the lines of the data set's file that may help."""

import math

from oneclass.tasks.ingest import containers
from oneclass.tasks.ingest.sources import LogFile

BOUNDS = "If such values are as they should be, widen value_min and value_max, or leave them out."
MAX_SUGGESTED_SHARE = 0.5
"""Where more lines are rejected, the log is misread rather than damaged."""
ADVICE = {
    "value is not a number": "Name a column of numbers as value, or let every line count 1:\n\n[columns]\nvalue = []",
    "value is below value_min": BOUNDS,
    "value is above value_max": BOUNDS,
    "time is later": (
        "If the clock is right, mend the times or state their form (time_format, timezone). If events may lie so far "
        "ahead, allow for it:\n\nmax_future_days = 400"
    ),
    "time is not": (
        "State the form of the times, or one of several after another:\n\n"
        'time_format = ["%Y-%m-%d", "%d.%m.%Y"]\n\nor leave the times out:\n\n[columns]\ntime = []'
    ),
    "stands for a missing id": "If it is an id as others are, keep it:\n\nmissing_ids = []",
    "is not JSON": "Write one JSON object a line, as `jq -c '.events[]'` does, or all in one array.",
    " fields instead of ": (
        'If another delimiter separates the fields, state it:\n\ndelimiter = "\\t"    # or another'
    ),
    "quotes do not pair": "Mend the quotes: one inside a field is written twice.",
}
"""Part of a reason -> what may help, with the lines of the data set's file."""


def explain_rejects(log: LogFile, rejects: int, lines: int, line: int, reason: str, share: float) -> str:
    """Return the refusal of a log with too many rejects.

    Args:
        line, reason: of its first reject.
        share: `max_reject_share` of the data set.
    """
    advice = [text for part, text in ADVICE.items() if part in reason]
    if "not UTF-8" in reason and not log.member:
        encoding = containers.guess_encoding(log.location, log.container)
        advice = (
            [f'State the encoding in the data set\'s file, which may be\n\nencoding = "{encoding}"'] if encoding else []
        )
    if rejects <= MAX_SUGGESTED_SHARE * lines:
        allowed = math.ceil(1000 * rejects / lines) / 1000
        advice.append(f"Mend the lines; or, to leave them out, allow for them:\n\nmax_reject_share = {allowed:g}")
    return (
        f"{log.path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
        f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. "
        + "\n\n".join(advice or ["Mend the lines, or name another log."])
    )
