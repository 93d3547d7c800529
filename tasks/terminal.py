"""Text from logs as a terminal may have it: ids and titles come from strangers, and may hold orders to a terminal."""

import re
from collections.abc import Sequence

# Controls of a terminal, separators of lines, marks that turn the direction of writing, and halves of characters.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """The text with every such character spelt out, such as `\\x1b`; line ends too."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_lines(text: str) -> str:
    """The same line by line, for a text whose line ends are the program's own."""
    return "\n".join(map(escape_controls, text.split("\n")))


def truncate(text: str, width: int) -> str:
    """The text, cut to a width with a mark at its end."""
    return text if len(text) <= width else text[: width - 1] + "…"


def format_grid(rows: Sequence[Sequence[str]]) -> str:
    """A header and rows as columns side by side; a column without a single value is left out."""
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    kept = [column for column in range(len(rows[0])) if column == 0 or any(row[column] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in kept]
    lines = ["  ".join(row[column].ljust(width) for column, width in zip(kept, widths, strict=True)) for row in rows]
    return "\n".join(f"  {line.rstrip()}" for line in lines)
