"""The constraints pin all that is declared, on every Python that is named.

And the page on others' internals names what there is.
"""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
PAGE = (ROOT / "docs" / "explanation" / "internals.md").read_text(encoding="utf-8")


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}


def applies_to(requirement: Requirement, python: str, extra: str = "") -> bool:
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def load_pins(python: str) -> dict[str, Requirement]:
    """The constraints of one Python; each pins one release, and none is pinned twice."""
    chosen = [one for one in CONSTRAINTS if applies_to(one, python)]
    found = {canonicalize_name(one.name): one for one in chosen}
    assert len(found) == len(chosen)
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in chosen)
    return found


def list_needed(texts: list[str], python: str) -> dict[str, list[Requirement]]:
    """Every distribution that some requirements need there, by the metadata installed here."""
    waiting = list(map(Requirement, texts))
    found: dict[str, list[Requirement]] = {}
    looked = set()
    while waiting:
        one = waiting.pop()
        found.setdefault(name := canonicalize_name(one.name), []).append(one)
        for extra in {"", *one.extras} - {extra for seen, extra in looked if seen == name}:
            looked.add((name, extra))
            try:
                others = map(Requirement, requires(name) or [])
            except PackageNotFoundError:  # of another Python
                continue
            waiting += [other for other in others if applies_to(other, python, extra)]
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_the_constraints_pin_all_that_is_needed(python):
    needs = list_needed(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"], python)
    pinned = load_pins(python)
    assert len(needs) > 100
    assert needs.keys() <= pinned.keys()
    for name, requirements in needs.items():
        (release,) = (specifier.version for specifier in pinned[name].specifier)
        assert all(one.specifier.contains(release, prereleases=True) for one in requirements), name


def test_the_pythons_that_are_named_are_those_that_are_taken():
    assert all(python in SpecifierSet(PROJECT["requires-python"]) for python in PYTHONS)
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    said = re.search(r"on Python (.*)\.", (ROOT / "constraints.txt").read_text(encoding="utf-8"))[1]
    assert re.findall(r"[\d.]+", said) == PYTHONS
    assert f"Python {PYTHONS[0]} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["duckdb", "great-expectations", "llvmlite", "numba", "prefect", "sqlalchemy"])
def test_what_leans_on_internals_is_capped_at_a_minor_release(package):
    (requirement,) = (one for one in PROJECT["dependencies"] if requirement_names([one]) == {package})
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
