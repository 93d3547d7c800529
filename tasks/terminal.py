"""Text from logs as a terminal may have it: ids and titles come from strangers, and may hold orders to a terminal."""

import re

# Controls of a terminal, separators of lines, marks that turn the direction of writing, and halves of characters.
ORDERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with every such character spelt out, such as `\\x1b`; line ends too."""
    return ORDERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """The same line by line, for a text whose line ends are the program's own."""
    return "\n".join(map(printable, text.split("\n")))
