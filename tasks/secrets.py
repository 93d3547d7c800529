"""Secrets that settings name instead of holding them: an environment variable, a file, or a Prefect Secret block.

A setting `NAME` with a secret value has the companions `NAME_env`, `NAME_file` and `NAME_block`. A value is read where
it is used, and no log line, parameter or file shows it or a part of it.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from oneclass.tasks.errors import InputError

SECRET_SETTINGS = ("notify.command", "notify.webhook")
PLACES = ("env", "file", "block")
MASK = "***"
# Shorter words of a secret are common in messages, or parts of other words.
MIN_WORD_LENGTH = 4


def read_secret(setting: str, content: str, *, env: str | None, file: str | None, block: str | None) -> str:
    """Read the value of a setting from the one place that is named.

    Args:
        setting: its name in messages, such as `notify.webhook`.
        content: a noun phrase for messages, such as "the address".

    Raises:
        InputError: there is no such place, or nothing in it.
    """
    if env:
        value = os.environ.get(env, "").strip()
        problem, advice = f"the environment variable {env} is not set", f"Set it to {content}."
    elif file:
        value, problem = _read_file(file)
        advice = f"Write {content} into it."
    else:
        value, problem = _read_block(str(block))
        advice = f"Create it on the Prefect server, with {content} as its value."
    if not value:
        key = "env" if env else "file" if file else "block"
        raise InputError(f"{setting}_{key}: {problem}. {advice}")
    return value


def _read_file(file: str) -> tuple[str, str]:
    """Return a file's text, and the problem if it is empty."""
    try:
        return Path(file).read_text(encoding="utf-8").strip(), f"{file} is empty"
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        return "", f"{file} cannot be read ({reason})"


def _read_block(name: str) -> tuple[str, str]:
    """Return the text of a Secret block, and the problem if it has none."""
    from prefect.blocks.system import Secret  # here, since commands without flows do not load Prefect

    try:
        block: Any = Secret.load(name)  # outside an event loop, this is not a coroutine
        value = block.value.get_secret_value()
    except Exception as error:  # noqa: BLE001  (an absent block, or any failure of the server)
        return "", f"the Secret block {name} cannot be read ({str(error).partition(chr(10))[0]})"
    return (value.strip() if isinstance(value, str) else ""), f"the Secret block {name} holds no text"


def mask_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted settings, such as those of `--set`, with the values of secrets masked."""
    return {name: MASK if name in SECRET_SETTINGS else value for name, value in settings.items()}


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
