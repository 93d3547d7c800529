"""Escape text from logs for a terminal: ids and titles are untrusted, and may contain control sequences."""

import codecs
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

# Control characters, line separators, bidirectional marks and surrogates.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# The marks of the program's own tables, for encodings without them.
_LINES = dict.fromkeys("─╌", "-") | dict.fromkeys("│┆", "|") | dict.fromkeys("┌┬┐╞╪╡├┼┤└┴┘", "+")
ASCII_MARKS = {"…": "...", "±": "+-", "═": "="} | _LINES


def escape_controls(text: str) -> str:
    r"""Escape every control character and line end in a text, such as `\x1b`."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_unencodable() -> None:
    r"""Have stdout escape characters that its encoding lacks, such as `\xe4`, as stderr does by itself."""
    codecs.register_error("oneclass.escape", _write_in_ascii)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="oneclass.escape")


def open_closed_streams() -> None:
    """Open standard input, output and error on the null device if the caller has closed them.

    Otherwise the next file that is opened, such as the warehouse, gets the number of one, and receives what libraries
    print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            os.set_inheritable(number, True)
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open as long as the process)


def print_text(text: str, stream: TextIO) -> str:
    """Print a text and return why it cannot be written, or an empty string.

    The stream then leads to the null device, so that Python does not fail once more when it flushes it at exit.
    """
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error.strerror or str(error)
    return ""


def _write_in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Handle characters that cannot be encoded (`codecs.register_error`)."""
    assert isinstance(error, UnicodeEncodeError)
    wanted = error.object[error.start : error.end]
    ascii_only = "".join(ASCII_MARKS.get(one) or one.encode("ascii", "backslashreplace").decode() for one in wanted)
    return ascii_only, error.end


def escape_lines(text: str) -> str:
    """Escape each line of a text whose line ends are the program's own."""
    return "\n".join(map(escape_controls, text.split("\n")))


def count_things(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def truncate(text: str, width: int) -> str:
    """Cut a text to a width, with an ellipsis at its end."""
    return text if len(text) <= width else text[: width - 1] + "…"


def format_grid(rows: Sequence[Sequence[str]]) -> str:
    """Format a header and rows as aligned columns, without empty ones."""
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    shown = [column for column in range(len(rows[0])) if column == 0 or any(row[column] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in shown]
    lines = ["  ".join(row[column].ljust(width) for column, width in zip(shown, widths, strict=True)) for row in rows]
    return "\n".join(f"  {line.rstrip()}" for line in lines)
