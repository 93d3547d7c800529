"""What is imported is declared, what is declared is imported, and the page on others' internals names what there is."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("flows", "tasks", "models", "sql", "data_contracts")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}


def imported() -> set[str]:
    """Packages, as they are called on an index, that the project's own modules import."""
    tops = set()
    for file in (path for room in OURS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                tops |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                tops.add(node.module.split(".")[0])
    others = tops - set(OURS) - sys.stdlib_module_names
    of = packages_distributions()
    return {re.sub(r"[_.]", "-", of[top][0]).lower() if top in of else top for top in others}


def test_what_is_imported_is_declared_and_nothing_else():
    declared = names(PROJECT["dependencies"])
    assert imported() - names(PROJECT["optional-dependencies"]["neural"]) == declared


@pytest.mark.parametrize("package", ["duckdb", "great-expectations", "llvmlite", "numba", "prefect", "sqlalchemy"])
def test_what_leans_on_internals_is_capped_at_a_minor_release(package):
    (requirement,) = (one for one in PROJECT["dependencies"] if names([one]) == {package})
    least, most = re.search(r">=([\d.]+),<([\d.]+)$", requirement).groups()
    major, minor = (*map(int, least.split(".")), 0)[:2]
    assert most == f"{major}.{minor + 1}"


@pytest.mark.parametrize("test", re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE))
def test_the_page_on_internals_names_tests_that_exist(test):
    file, name = test
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not name or f"def {name}(" in text


@pytest.mark.parametrize(
    "file", sorted(set(re.findall(r"`((?:flows|tasks|models|data_contracts|sql)/[\w/.]+)`", PAGE)))
)
def test_the_page_on_internals_names_files_that_exist(file):
    assert (ROOT / file).exists()
