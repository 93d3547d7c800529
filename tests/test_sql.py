"""Statements longer than five lines are in `sql/`; each has a name of its own and is used."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from oneclass import sql

ROOT = Path(__file__).parents[1]
FOLDERS = ("flows", "tasks", "data_contracts", "models")
MAX_LINES = 5
WORDS = "select|insert|delete|update|create|with|copy|from|drop|alter"
STARTS = re.compile(rf"\s*(?:{WORDS}|{WORDS.upper()})\s")  # a sentence that begins with one of them has one capital
STAGES = sorted(file.stem for file in (ROOT / "sql").glob("*.sql"))
STATEMENTS = [f"{stage}/{name}" for stage in STAGES for name in sql.statements(stage)]
PYTHON = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def text_of(node: ast.AST) -> str | None:
    """The string of a node, with `x` for each value of an f-string; None if the node is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "x" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "x") + (right or "x")
    return None


def find_strings(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The outermost strings in a tree, docstrings left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if (text := text_of(child)) is not None:
            yield child, text
        else:
            yield from find_strings(child)


@cache
def strings_of(source: str) -> list[tuple[ast.AST, str]]:
    return list(find_strings(ast.parse(source)))


def long_sql(source: str) -> list[int]:
    """The lines at which a source has SQL that is longer than five lines."""
    return [
        node.lineno
        for node, text in strings_of(source)
        if STARTS.match(text) and max(text.count("\n"), node.end_lineno - node.lineno) >= MAX_LINES
    ]


def test_no_sql_longer_than_five_lines_stands_in_python():
    long = [f"{path.relative_to(ROOT)}:{line}" for path in PYTHON for line in long_sql(path.read_text())]
    assert not long, f"put these statements into sql/: {', '.join(long)}"


@pytest.mark.parametrize("stage", STAGES)
def test_every_statement_has_a_name_of_its_own(stage):
    text = (ROOT / "sql" / f"{stage}.sql").read_text(encoding="utf-8")
    assert text.startswith("-- name: ") and text.count("-- name: ") == len(sql.statements(stage))


def named_in(*paths: Path) -> set[str]:
    """The strings of Python files, with `x` for each value of an f-string."""
    return {text for path in paths for _, text in strings_of(path.read_text(encoding="utf-8"))}


def test_every_statement_is_used_and_every_name_has_a_statement():
    """The report and ingest's layouts name their statements without the stage."""
    report = {f"report/{text}" for text in named_in(*(ROOT / "tasks" / "report").glob("*.py"))}
    declared = (ROOT / "tasks" / "ingest" / "layouts.py", ROOT / "tasks" / "datasets" / "__init__.py")
    layouts = {f"ingest/{text}" for text in named_in(*declared)}
    used = named_in(*PYTHON)
    in_order = {name for name in STATEMENTS if name.startswith(("migrations/", "schema/"))}
    assert set(STATEMENTS) <= used | report | layouts | in_order
    named = {name for name in used if re.fullmatch(rf"(?:{'|'.join(STAGES)})/[a-z_]+", name)}
    assert named - set(STATEMENTS) == {"report/x", "ingest/x"}
