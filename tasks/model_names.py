"""The models' names, for `--help`, read from their sources, since importing the models takes seconds."""

import re
from importlib.metadata import entry_points
from pathlib import Path

MODELS_FOLDER = Path(__file__).parents[1] / "models"
NAME_DECLARATION = re.compile(r'^    name(?:: .+)? = "(\w+)"', flags=re.MULTILINE)


def list_models() -> list[str]:
    """List the names of every model, those of other packages among them, in alphabetical order."""
    own = (NAME_DECLARATION.findall(file.read_text(encoding="utf-8")) for file in MODELS_FOLDER.rglob("*.py"))
    others = (point.name for point in entry_points(group="oneclass.models"))
    return sorted({*others, *(name for names in own for name in names)})
