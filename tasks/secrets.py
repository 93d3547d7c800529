"""Secrets that settings name instead of holding them: `env:NAME`, `file:/PATH` or `block:NAME`.

A value is read where it is used, and no log line, parameter or file shows it or a part of it.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from oneclass.tasks.errors import InputError

MASK = "***"
MIN_WORD_LENGTH = 4  # shorter words of a secret are hidden where they stand alone, but not inside other words


def is_reference(value: str) -> bool:
    """Whether a setting names the place of a value, instead of holding it."""
    return value.startswith(("env:", "file:", "block:"))


def check_reference(value: str) -> str:
    """Return the name of a value's place; raise `ValueError`, without showing what may be the value, if it is none."""
    if not is_reference(value):
        raise ValueError(
            "may hold a token: write env:NAME for an environment variable with it, file:PATH for a file, or "
            "block:NAME for a Secret block on the Prefect server"
        )
    if value.startswith("file:") and not value.startswith("file:/"):
        raise ValueError("give the whole path of the file, such as file:/etc/oneclass/webhook")
    return value


def read_secret(setting: str, content: str, reference: str) -> str:
    """Read the value of a setting from the place that it names; raise `InputError` if there is none.

    Args:
        setting: its name in messages, such as `notify.webhook`.
        content: a noun phrase for messages, such as "the address".
    """
    place, _, name = reference.partition(":")
    try:
        value, problem = _read_place(place, name), "is empty or not set"
    except Exception as error:  # noqa: BLE001  (an absent file or block, or any failure of the server)
        value, problem = "", f"cannot be read ({str(error).partition(chr(10))[0]})"
    if not value:
        noun = {"env": "environment variable", "file": "file", "block": "Secret block"}[place]
        raise InputError(f"{setting} = {reference}: the {noun} {name} {problem}. Store {content} there.")
    return value


def _read_place(place: str, name: str) -> str:
    if place == "env":
        return os.environ.get(name, "").strip()
    if place == "file":
        return Path(name).read_text(encoding="utf-8").strip()
    # Commands without flows do not load Prefect.
    from prefect.blocks.system import Secret

    block: Any = Secret.load(name)
    return str(block.value.get_secret_value()).strip()


def hide_secrets(message: str, secrets: Iterable[str]) -> str:
    """Return a message without these values and their words, in percent encoding or not."""
    values = {one for secret in secrets for one in (secret, unquote(secret))}
    words = {word for one in values for word in (one, *re.split(r"[\s/?&=:@#]+", one), *re.split(r"\W+", one)) if word}
    for word in sorted(words, key=len, reverse=True):
        pattern = re.escape(word)
        message = re.sub(pattern if len(word) >= MIN_WORD_LENGTH else rf"(?<!\w){pattern}(?!\w)", MASK, message)
    return message
