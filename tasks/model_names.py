"""The models' names, for `--help`, read from their sources: to import them takes seconds."""

import re
from pathlib import Path

MODELS = Path(__file__).parents[1] / "models"
NAME = re.compile(r'^    name(?:: .+)? = "(\w+)"', flags=re.MULTILINE)


def names() -> list[str]:
    """The names of every model in the catalogue, in alphabetical order."""
    return sorted(name for file in MODELS.rglob("*.py") for name in NAME.findall(file.read_text(encoding="utf-8")))
