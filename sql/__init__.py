"""The project's SQL: one file a statement or view, `sql/<stage>/<name>.sql`."""

from functools import cache
from importlib.resources import files


@cache
def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def statement(name: str, **names: str) -> str:
    """The text of `sql/<name>.sql`, with every `{key}` replaced by `names[key]`.

    `names` are for identifiers and relations, which cannot be bound; values are bound by the caller
    as DuckDB's named parameters (`$name`).
    """
    text = _text(name)
    for key, value in names.items():
        text = text.replace("{" + key + "}", value)
    return text


def schema() -> list[str]:
    """Every `sql/schema/*.sql`, in file order: the warehouse's tables, each made only where absent."""
    folder = files(__name__).joinpath("schema")
    return [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda f: f.name)]
