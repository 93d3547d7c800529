"""Secrets that settings name instead of holding them: `env:NAME`, `file:PATH` or `block:NAME`.

A value is read where it is used, and no log line, parameter or file shows it or a part of it.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from oneclass.tasks.errors import InputError

PLACES = ("env", "file", "block")
REFERENCE = re.compile(rf"({'|'.join(PLACES)}):(.+)", re.DOTALL)
MASK = "***"
# Shorter words of a secret are common in messages, or parts of other words.
MIN_WORD_LENGTH = 4


def is_reference(value: str) -> bool:
    """Whether a setting names the place of a value, instead of holding it."""
    return REFERENCE.fullmatch(value) is not None


def check_reference(value: str) -> str:
    """Return the name of a value's place.

    Raises:
        ValueError: it is none, and not shown since it may be the value.
    """
    if not is_reference(value):
        raise ValueError(
            "may hold a token: write env:NAME for an environment variable with it, file:PATH for a file, or "
            "block:NAME for a Secret block on the Prefect server"
        )
    if value.startswith("file:") and not value.startswith("file:/"):
        raise ValueError("give the whole path of the file, such as file:/etc/oneclass/webhook")
    return value


def accept_former_places(values: Any, name: str) -> Any:
    """Return a section of settings in which `NAME_env = "X"` of an earlier version is `NAME = "env:X"`, and so on."""
    if not isinstance(values, dict):
        return values
    kept = dict(values)
    for place in PLACES:
        if named := kept.pop(f"{name}_{place}", None):
            kept[name] = f"{place}:{named}"
    return kept


def read_secret(setting: str, content: str, reference: str) -> str:
    """Read the value of a setting from the place that it names.

    Args:
        setting: its name in messages, such as `notify.webhook`.
        content: a noun phrase for messages, such as "the address".

    Raises:
        InputError: there is no such place, or nothing in it.
    """
    place, _, name = reference.partition(":")
    value, problem, advice = READERS[place](name)
    if not value:
        raise InputError(f"{setting} = {reference}: {problem}. {advice.format(content)}.")
    return value


def _read_environment(name: str) -> tuple[str, str, str]:
    return os.environ.get(name, "").strip(), f"the environment variable {name} is not set", "Set it to {}"


def _read_file(path: str) -> tuple[str, str, str]:
    advice = "Write {} into it"
    try:
        return Path(path).read_text(encoding="utf-8").strip(), f"{path} is empty", advice
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        return "", f"{path} cannot be read ({reason})", advice


def _read_block(name: str) -> tuple[str, str, str]:
    from prefect.blocks.system import Secret  # here, since commands without flows do not load Prefect

    advice = "Create it on the Prefect server, with {} as its value"
    try:
        block: Any = Secret.load(name)  # outside an event loop, this is not a coroutine
        value = block.value.get_secret_value()
    except Exception as error:  # noqa: BLE001  (an absent block, or any failure of the server)
        return "", f"the Secret block {name} cannot be read ({str(error).partition(chr(10))[0]})", advice
    return (value.strip() if isinstance(value, str) else ""), f"the Secret block {name} holds no text", advice


READERS = {"env": _read_environment, "file": _read_file, "block": _read_block}


def hide_secrets(message: str, secrets: Iterable[str]) -> str:
    """Return a message without these values, their words, and the segments of URLs among them.

    Words of at most three letters or digits are hidden only if they are of a URL, such as its user, and then as words.
    """
    values = {one for secret in secrets for one in (secret, unquote(secret))}
    words = {word for one in values for word in (one, *re.split(r"[\s/?&=:@#]+", one), *re.split(r"\W+", one))}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= MIN_WORD_LENGTH:
            message = message.replace(word, MASK)
    in_urls = {word for one in values if "://" in one for word in re.split(r"\W+", one.partition("://")[2])}
    for word in in_urls:
        if 0 < len(word) < MIN_WORD_LENGTH:
            message = re.sub(rf"\b{re.escape(word)}\b", MASK, message)
    return message
