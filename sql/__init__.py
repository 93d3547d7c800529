"""The project's SQL: `sql/<stage>.sql` holds the statements of a stage."""

import hashlib
import re
from functools import cache
from importlib.resources import files

FIRST_VERSION = 14  # of the warehouse's tables that can be migrated
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)  # the line before each statement


def statement(name: str, **names: str) -> str:
    """Return the statement `-- name: <statement>` of `sql/<stage>.sql`, with every `{key}` replaced by `names[key]`.

    `names` are for identifiers and relations, which cannot be bound; values are bound by the caller
    as DuckDB's named parameters (`$name`).

    Args:
        name: `<stage>/<statement>`.
    """
    stage, _, own = name.partition("/")
    text = statements(stage)[own]
    for key, value in names.items():
        text = text.replace("{" + key + "}", value)
    return text


@cache
def statements(stage: str) -> dict[str, str]:
    """Return every statement of a stage by its name, in file order."""
    _, *parts = _NAME.split(_stage_text(stage))
    return dict(zip(parts[::2], parts[1::2]))


def stage_digest(stage: str) -> str:
    """Return a digest of all statements of a stage."""
    return hashlib.sha256(_stage_text(stage).encode()).hexdigest()


def migrations() -> dict[int, str]:
    """Number -> text of every migration in `sql/migrations.sql`, in order: what warehouses since FIRST_VERSION lack.

    They run before the warehouse's tables are made (`data_contracts.contracts.schema`), on a new warehouse
    too, so each skips missing tables (`alter table if exists`)
    and existing columns (`add column if not exists`). A new table needs none.
    """
    return dict(enumerate(statements("migrations").values(), FIRST_VERSION + 1))


@cache
def _stage_text(stage: str) -> str:
    return files(__name__).joinpath(f"{stage}.sql").read_text(encoding="utf-8")
