"""The models' names, for `--help`, read from their sources, since importing the models takes seconds."""

import re
from pathlib import Path

MODELS_FOLDER = Path(__file__).parents[1] / "models"
NAME_DECLARATION = re.compile(r'^    name(?:: .+)? = "(\w+)"', flags=re.MULTILINE)


def list_models() -> list[str]:
    """List the names of every model in alphabetical order."""
    return sorted(
        name
        for file in MODELS_FOLDER.rglob("*.py")
        for name in NAME_DECLARATION.findall(file.read_text(encoding="utf-8"))
    )
