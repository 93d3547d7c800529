"""The names of data sets: they are folders and files of a home, and parts of names on Prefect's server."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from oneclass.tasks.errors import InputError

MAX_NAME_LENGTH = 100
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
RESERVED = ("datasets", "index.html")  # what else lies in a home
RULE = (
    "A name has ASCII letters, digits, '.', '_' and '-', begins with a letter or a digit, is at most "
    f"{MAX_NAME_LENGTH} long, is not {' or '.join(RESERVED)}, and differs from the home's other names by more than case"
)


def check_name(name: str, root: Path, known: Collection[str]) -> None:
    """Raise `InputError` for a name that breaks `RULE`; of two that differ by case, one without a folder.

    Args:
        known: the data sets with a file.
    """
    folders = {folder.name for folder in root.glob("*") if is_data_set(folder)}
    clash = next((one for one in sorted({*known, *folders}) if one != name and one.casefold() == name.casefold()), "")
    if NAME.fullmatch(name) and name.lower() not in RESERVED and (not clash or name in folders):
        return
    problem = f"there is {clash}" if clash else "and cannot be a name"
    raise InputError(
        f"data set {name!r}: unknown, {problem}. {RULE}. Choose another; to keep what has it, rename {root / name} and "
        f"{root / 'datasets' / f'{name}.toml'}."
    )


def is_data_set(folder: Path) -> bool:
    """Whether a folder of a home holds a data set."""
    # Path.exists would fail on a folder that this user cannot read.
    return any(os.path.exists(folder / part) for part in ("landing", "warehouse.duckdb", "published"))
