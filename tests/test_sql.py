"""SQL has one home: statements longer than a line lie in `sql/`, each says what one row is, is used, and parses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("flows", "tasks", "data_contracts", "models")
LINE = 120
WORDS = "select|insert|delete|update|create|with|copy|from|drop|alter"
BEGINS = re.compile(rf"\s*(?:{WORDS}|{WORDS.upper()})\s")  # a sentence that begins with one of them has one capital
ONE_ROW = re.compile(r"\bone row(?: at most)?(?::| per | a )", re.IGNORECASE)
FILES = sorted((ROOT / "sql").rglob("*.sql"))
PYTHON = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT / "sql").with_suffix("").as_posix()


def text_of(node: ast.AST) -> str | None:
    """A string as it stands in the source, `x` for what an f-string puts in; None where the node is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "x" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "x") + (right or "x")
    return None


def strings(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The outermost strings in a tree, docstrings left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if (text := text_of(child)) is not None:
            yield child, text
        else:
            yield from strings(child)


def long_sql(source: str) -> list[int]:
    """The lines at which a source has SQL that is longer than a line."""
    return [
        node.lineno
        for node, text in strings(ast.parse(source))
        if BEGINS.match(text) and (len(text) > LINE or "\n" in text or node.end_lineno > node.lineno)
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('q = """\nselect 1\n"""', True),
        ('q = "select a " "from b"', False),  # one line, both pieces on it
        ('q = ("select a "\n "from b")', True),
        ('q = f"with a as ({b}) "\\\n f"select * from {c}"', True),
        ('q = "insert into t " + rows + \\\n " by name"', True),
        (f'run("select {"a, " * 40} b from c")', True),
        (f'run("SELECT {"a, " * 40} b FROM c")', True),
        (f'run("Select {"a, " * 40} b from c")', False),
        ('q = "select a from b"', False),
        ('def f():\n    """with a title\n    and a text."""', False),
        ('q = "Update the factors of one side,\\nthen of the other."', False),
    ],
)
def test_long_sql_is_known_when_seen(source, found):
    assert bool(long_sql(source)) is found


def test_no_sql_longer_than_a_line_stands_in_python():
    found = [f"{path.relative_to(ROOT)}:{line}" for path in PYTHON for line in long_sql(path.read_text())]
    assert not found, f"put these statements into sql/: {', '.join(found)}"


def head(file: Path) -> str:
    """The comment that a file begins with."""
    return re.match(r"(?:--.*\n)*", file.read_text(encoding="utf-8")).group()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_begins_with_what_one_row_is(file):
    assert ONE_ROW.search(" ".join(head(file).split())), f"{file}: begin with a comment such as `-- One row per ...`"


def test_each_table_of_the_schema_says_what_one_row_is():
    for file in (ROOT / "sql" / "schema").rglob("*.sql"):
        found = re.findall(r"((?:--.*\n)+)(?:create schema .*;\n)?create .*?([a-z]+\.\w+) ", file.read_text())
        assert len(found) == len(re.findall(r"^create (?!schema)", file.read_text(), re.MULTILINE)), file
        for comment, table in found:
            assert comment.startswith(f"-- {table}: one row "), f"{file}: {table}"


def named_in(*paths: Path) -> set[str]:
    """The strings of Python files, `x` for what an f-string puts in."""
    return {text for path in paths for _, text in strings(ast.parse(path.read_text(encoding="utf-8")))}


def test_every_file_is_used_and_every_name_has_a_file():
    """The report and ingest's layouts name their statements without the folder."""
    files = {name_of(file) for file in FILES}
    report = {f"report/{text}" for text in named_in(*(ROOT / "tasks" / "report").glob("*.py"))}
    declared = (ROOT / "tasks" / "ingest" / "formats.py", ROOT / "tasks" / "datasets" / "__init__.py")
    layouts = {f"ingest/{text}" for text in named_in(*declared)}
    used = named_in(*PYTHON)
    unused = {name for name in files - used - report - layouts if not name.startswith("schema/")}
    assert not unused, f"no Python file uses {', '.join(f'sql/{name}.sql' for name in sorted(unused))}"
    folders = "|".join({name.partition("/")[0] for name in files})
    assert {name for name in used if re.fullmatch(rf"(?:{folders})/[a-z_]+", name)} - files == {"report/x", "ingest/x"}


STANDS_FOR = {"declared": "('a', 'b')", "query": "select 1", "block": "1"}  # an identifier for all others


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_parses(file):
    text = re.sub(r"\{(\w+)\}", lambda key: STANDS_FOR.get(key[1], "x"), file.read_text(encoding="utf-8"))
    if name_of(file) == "ingest/quoted_fields":  # an expression, for a place in ingest/delimited
        text = f"select {text}"
    assert duckdb.extract_statements(text)
