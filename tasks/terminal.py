"""Text for a terminal: ids and titles of logs are untrusted, and may contain control sequences."""

import io
import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

# Control characters, line separators, bidirectional marks and surrogates.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    r"""Escape every control character and line end in a text, such as `\x1b`."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_lines(text: str) -> str:
    """Escape each line of a text whose line ends are the program's own."""
    return "\n".join(map(escape_controls, text.split("\n")))


def prepare_streams() -> None:
    r"""Open closed standard streams on the null device; have stdout escape what its encoding lacks, such as `\xe4`.

    Otherwise the next file that is opened, such as the warehouse, would receive what libraries print.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    os.close(null)
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_text(text: str, stream: TextIO) -> str:
    """Print a text, flush the stream and return why it cannot be written, or an empty string.

    After an error the stream leads to the null device, so that flushing it at exit does not fail once more.
    """
    try:
        print(text, file=stream, end="\n" if text else "", flush=True)
    except OSError as error:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), stream.fileno())
        return error.strerror or str(error)
    return ""


def count_things(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def truncate(text: str, width: int) -> str:
    """Cut a text to a width, with an ellipsis at its end."""
    return text if len(text) <= width else text[: width - 1] + "…"


def format_grid(rows: Sequence[Sequence[str]]) -> str:
    """Format a header and rows as aligned columns, without empty ones."""
    columns = [[escape_controls(cell) for cell in column] for column in zip(*rows, strict=True)]
    shown = [column for number, column in enumerate(columns) if number == 0 or any(column[1:])]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in shown]
    return "\n".join(f"  {'  '.join(line).rstrip()}" for line in zip(*padded, strict=True))
