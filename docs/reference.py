"""Write the reference from the declared commands, settings, metrics and tables.

`mkdocs build` adds it to the site as reference.md; `python -m docs.reference` prints it.
"""

import inspect
import json
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from oneclass.data_contracts import contracts
from oneclass.flows import commands
from oneclass.flows.parameters import describe_parameters
from oneclass.models.evaluation import definitions, metrics
from oneclass.models.evaluation.metrics import ALIASES
from oneclass.models.registry import MODELS
from oneclass.tasks.protocols import PROTOCOLS, VALIDATION_METRIC
from oneclass.tasks.publish import files
from oneclass.tasks.settings import STAGE_SETTINGS

BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
# A table or view of the schema: its comment, its name, and all until the next comment of that kind.
CREATED = re.compile(
    r"((?:--.*\n)+)(?:create schema .*\n)?create .*?([a-z]+\.\w+) ([\s\S]*?)(?=\n-- [a-z]+\.\w+: one row|\Z)"
)
# A column with a comment of its own.
COLUMN = re.compile(r"^    (\w+) (\w+)([^,\n-]*),? -- (.*)$", flags=re.MULTILINE)


def on_files(files: Any, config: Any) -> None:
    """Add the page to those of the site, as a hook of MkDocs."""
    from mkdocs.structure.files import File  # which only the extra `docs` installs

    files.append(File.generated(config, "reference.md", content=write_page()))


def write_page() -> str:
    """Return the whole page in Markdown."""
    return "\n".join(["# Reference\n", *_commands(), *_settings(), *_metrics(), *_tables()]) + "\n"


def _commands() -> Iterator[str]:
    yield "## Commands\n\nEach is `python -m flows.NAME` in a checkout and `oneclass NAME` after installation.\n"
    for name in commands.COMMANDS:
        app = commands.build_app(name)
        yield f"### {name}\n\n{' '.join(app.help.split(chr(10) * 2)[0].split())}\n"
        given, *flags, _ = app.assemble_argument_collection()
        meanings = describe_parameters(given.hint)
        rows = ((_code(flag.name), _default(flag.field_info.default), meanings[flag.field_info.name]) for flag in flags)
        yield _table(("flag", "default", "meaning"), rows)
    yield "Each also takes `--debug`, which shows tracebacks, and `--version`.\n\n### Exit statuses\n"
    yield _table(("status", "when"), ((str(status), when) for status, when in commands.EXIT_STATUSES.items()))


def _settings() -> Iterator[str]:
    yield (
        "## Settings\n\nUse them as `--set section.name=value`, or in a TOML file for `--config` below `[section]`. "
        "If the default is none, the description states the rule.\n\n### Settings of the stages\n"
    )
    yield from (_section(name, kind) for name, kind in STAGE_SETTINGS.items())
    yield "### Settings of the models\n"
    yield from (_section(name, model.Settings) for name, model in MODELS.items())


def _section(name: str, kind: type[BaseModel]) -> str:
    text = f"#### [{name}]\n\n{_paragraph(kind)}\n"
    if kind.model_fields:
        text += "\n" + _fields_table(kind)
    for inner in _inner(kind):
        text += f"\n{inner.__name__}: {_paragraph(inner)}\n\n{_fields_table(inner)}"
    return text


def _fields_table(kind: type[BaseModel]) -> str:
    fields = kind.model_fields.items()
    rows = ((_code(name), _type(field), _default(field.default), field.description) for name, field in fields)
    return _table(("name", "type", "default", "meaning"), rows)


def _inner(kind: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that the fields of a model are lists of."""
    parts = (part for field in kind.model_fields.values() for part in get_args(field.annotation))
    return [part for part in parts if inspect.isclass(part) and issubclass(part, BaseModel)]


def _type(field: FieldInfo) -> str:
    kind, bounds = field.annotation, []
    if isinstance(kind, types.UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    if kind is SecretStr:
        return "secret"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    for constraint in field.metadata:
        bounds += [f"{sign} {getattr(constraint, name)}" for name, sign in BOUNDS.items() if hasattr(constraint, name)]
    inner = [part.__name__ for part in get_args(kind) if inspect.isclass(part)]
    words = f"{get_origin(kind).__name__} of {', '.join(inner)}" if inner else kind.__name__
    return " ".join([words, ", ".join(bounds)]).strip()


def _default(default: Any) -> str:
    if default in (PydanticUndefined, inspect.Parameter.empty):
        return "required"
    if default is None or default in ([], {}):
        return "none"
    if isinstance(default, tuple):
        default = [one.model_dump(exclude_unset=True) for one in default]
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def _metrics() -> Iterator[str]:
    yield "## Protocols\n\nThe first main metric ranks the models. Settings are chosen on the validation part.\n"
    yield _table(
        ("protocol", "meaning", "main metrics", "settings are chosen by"),
        ((f"`{n}`", p.meaning, ", ".join(map(_code, p.main_metrics)), _code(p.tuned_by)) for n, p in PROTOCOLS.items()),
    )
    yield f"## Metrics\n\n{_paragraph(definitions, 1)}\n\n{_paragraph(metrics.average_over_users, 1)}\n"
    yield "In `evaluation.metrics`:\n"
    on_validation = definitions.Definition(f"{PROTOCOLS['strong_generalization'].tuned_by} of the validation users", "")
    yield _definitions(
        {
            **definitions.USER_METRICS,
            VALIDATION_METRIC: on_validation,
            **definitions.SEEN_ITEM_METRICS,
            **definitions.NEW_ITEM_METRICS,
        }
    )
    yield "In `evaluation.beyond_accuracy`:\n"
    yield _definitions(definitions.LIST_METRICS)
    yield "By `oneclass.evaluate(metrics=[...])` and the setting `evaluate.metrics`, in upper or lower case:\n"
    yield _definitions(definitions.METRICS_AT_K)
    aliases = ", ".join(f"{_code(alias)} is {_code(name)}" for alias, name in ALIASES.items())
    yield f"`map`, `mrr` and `ndcg` without k are of the whole ranking. Of other names {aliases}.\n"
    yield f"In `evaluation.comparisons`: {_paragraph(metrics.compare_paired)} {_paragraph(metrics.compare_paired, 1)}\n"


def _definitions(found: dict[str, definitions.Definition]) -> str:
    rows = ((_code(name), one.formula, one.source) for name, one in found.items())
    return _table(("metric", "formula", "source"), rows)


def _tables() -> Iterator[str]:
    yield "## Tables\n\nIn `<home>/<dataset>/warehouse.duckdb`, in the order of the stages.\n"
    described = {contract.table: contract for contract in contracts.load()}
    for statements in contracts.schema():
        for comment, name, body in CREATED.findall(statements):
            if contract := described.get(name):
                row = f"one row is {contract.row}"
                columns = [(_code(name), column.declared, column.meaning) for name, column in contract.columns.items()]
            else:
                row = comment.partition(": ")[2]
                found = COLUMN.findall(body)
                columns = [(_code(name), kind.upper() + null, meaning) for name, kind, null, meaning in found]
            yield f"### {name}\n\n{_one_row(row)}\n"
            if columns:
                yield _table(("column", "type", "meaning"), columns)
    yield "### published.duckdb\n\nFor readers: `<home>/<dataset>/published/published.duckdb`\n"
    rows = {table.partition(".")[2]: f"one row is {contract.row}" for table, contract in described.items()}
    rows |= {name: head[0] for name, query in files.PUBLISHED_TABLES.items() if (head := re.match("(--.*\n)+", query))}
    yield _table(("table", "rows"), ((_code(name), _one_row(rows[name])) for name in files.PUBLISHED_TABLES))


def _one_row(comment: str) -> str:
    """A comment of SQL as a sentence."""
    return _sentence(" ".join(line.removeprefix("--").strip() for line in comment.splitlines()))


def _paragraph(of: Any, number: int = 0) -> str:
    """One paragraph of a docstring."""
    return " ".join(inspect.getdoc(of).split("\n\n")[number].split())


def _code(name: str) -> str:
    return f"`{name}`"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].removesuffix(".") + "."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    print(write_page(), end="")
