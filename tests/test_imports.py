"""Who may import whom: flows -> tasks -> models, sql, data_contracts; and the rooms within models and tasks.

Other packages are imported if they are declared, and the constraints pin all that is declared on every Python.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from oneclass.models import fingerprint

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {  # room: the project's other rooms that it may import
    "flows": {"tasks"},
    "oneclass": {"tasks", "models", "sql", "data_contracts"},  # the modules of the surface, `oneclass/*.py`
    "tasks": {"models", "sql", "data_contracts"},
    "models": set(),
    "sql": set(),
    "data_contracts": {"sql"},
}
OUTSIDE_OF_MODELS = {"prefect", "duckdb", "great_expectations"}
SHARED = {"attributes", "evaluation", "negatives", "degrees", "generator", "numerics"}  # rooms in models/
# everything else in models/ is a family of models
NO_FAMILY = SHARED | fingerprint.SHARED | {"by_id", "registry"}
TASKS_BELOW_THE_STAGES = {  # room in tasks/: its neighbours that it may import
    "stores": {"errors"},
    "orchestration": {"errors", "secrets", "stores"},
}


@dataclass(frozen=True)
class Import:
    """One import of one file, by dotted names.

    Attributes:
        target: the module, with the name that is taken from it, if any.
        where: file and line, for people.
        for_types: it stands under `if TYPE_CHECKING:`, and never runs.
    """

    importer: str
    target: str
    where: str
    for_types: bool


def find_imports(root: Path, rooms: Iterable[str] = MAY_IMPORT) -> list[Import]:
    """Every import in the project's rooms, those within functions and under `if TYPE_CHECKING` included."""
    found = []
    for file in sorted(file for room in rooms for file in (root / room).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        name = file.relative_to(root).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for_types = {id(inner) for node in ast.walk(tree) if _only_for_types(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            for written in _import_targets(node):
                inside = written.removeprefix("oneclass.")
                target = inside if inside.partition(".")[0] in MAY_IMPORT else written
                where = f"{file.relative_to(root)}:{node.lineno} imports {written}"
                found.append(Import(name, target, where, id(node) in for_types))
    return found


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in (vars(node.test).get("id"), vars(node.test).get("attr"))


def _import_targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: write the import in full"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def find_breaches(found: list[Import]) -> list[str]:
    """Every import that goes against the rules."""
    return [one.where for one in found if not _is_allowed(*_split_rooms(one.importer), *_split_rooms(one.target))]


def _is_allowed(room: str, inner: str, other: str, neighbour: str) -> bool:
    """Whether the room `inner` of `room` may import the room `neighbour` of `other`."""
    if other != room:
        outside = OUTSIDE_OF_MODELS if room == "models" else set()
        return other not in (MAY_IMPORT.keys() - MAY_IMPORT[room]) | outside
    if neighbour == inner:
        return True
    if room == "models":
        return neighbour in (SHARED if inner in SHARED else NO_FAMILY - {"registry"})
    return room != "tasks" or inner not in TASKS_BELOW_THE_STAGES or neighbour in TASKS_BELOW_THE_STAGES[inner]


def _split_rooms(name: str) -> tuple[str, str]:
    """The outer room of a dotted name, and the one within."""
    room, inner, *_ = [*name.split("."), "", ""]
    return room, inner


def find_cycles(found: list[Import]) -> Iterator[str]:
    """Rooms that import each other when they run, straight or by way of others; modules are rooms of their own."""
    reached: dict[str, set[str]] = {}
    for one in found:
        if one.for_types:
            continue
        importer, target = (".".join(_split_rooms(name)).rstrip(".") for name in (one.importer, one.target))
        if importer != target and target.partition(".")[0] in MAY_IMPORT:
            reached.setdefault(importer, set()).add(target)
    for start, ahead in reached.items():
        seen, ahead = set(), list(ahead)
        while ahead:
            room = ahead.pop()
            if room not in seen:
                seen.add(room)
                ahead += reached.get(room, ())
        if start in seen:
            yield start


@pytest.fixture(scope="module")
def ours() -> list[Import]:
    return find_imports(ROOT)


def test_every_import_points_down(ours):
    assert find_breaches(ours) == []


def test_the_packages_are_imported_as_oneclass(ours):
    """A bare `tasks` or `models` would be the user's own module of that name."""
    rooms = "|".join(MAY_IMPORT.keys() - {"oneclass"})
    assert [one.where for one in ours if re.search(rf" imports (?:{rooms})\b", one.where)] == []


def test_no_rooms_import_each_other(ours):
    assert list(find_cycles(ours)) == []


def test_what_is_imported_is_declared_and_nothing_else(ours):
    """But for the module that tests others' models."""
    found = [one for one in ours if one.importer != "oneclass.testing"]
    tops = {re.search(r" imports (\w+)", one.where)[1] for one in found}
    of = packages_distributions()  # as packages are called on an index
    others = tops - MAY_IMPORT.keys() - sys.stdlib_module_names
    imported = {re.sub(r"[_.]", "-", of[top][0]).lower() if top in of else top for top in others}
    declared, extras = requirement_names(PROJECT["dependencies"]), PROJECT["optional-dependencies"]
    assert imported - requirement_names(extras["neural"] + extras["dask"] + extras["sql"]) == declared


def test_the_rooms_that_models_share_are_in_every_fingerprint(ours):
    """Each model is fitted from its family, and from rooms that its fingerprint covers, which import no others."""
    beside = [
        one.where
        for one in ours
        for room, inner, other, neighbour in [(*_split_rooms(one.importer), *_split_rooms(one.target))]
        if room == other == "models" and inner not in ("generator", "registry", neighbour) and not one.for_types
        if neighbour not in fingerprint.SHARED
    ]
    assert beside == []


def test_the_imports_are_found(ours):
    assert {one.importer.partition(".")[0] for one in ours} == set(MAY_IMPORT)
    assert any(one.importer == "flows.train_and_publish" and one.target.startswith("tasks.train.") for one in ours)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("flows/tune.py", "def build():\n    from data_contracts import checks"),
        ("tasks/stores/home.py", "from tasks.orchestration import artifacts"),
        ("models/base.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import duckdb"),
        ("models/by_id.py", "def read():\n    from oneclass.interactions import Interactions"),
        ("models/negatives/distributions.py", "from models.base import Model"),
        ("models/wmf/model.py", "from models.slim.model import SLIM"),
    ],
)
def test_an_import_that_points_up_is_found(tmp_path, file, line):
    _write_module(tmp_path, file, line)
    (breach,) = find_breaches(find_imports(tmp_path))
    assert breach.startswith(f"{file}:")


def test_a_cycle_is_found(tmp_path):
    _write_module(tmp_path, "tasks/evaluate/stage.py", "from tasks.report import page")
    _write_module(tmp_path, "tasks/report/page.py", "def page():\n    from tasks.evaluate import stage")
    assert sorted(find_cycles(find_imports(tmp_path))) == ["tasks.evaluate", "tasks.report"]


def _write_module(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text + "\n", encoding="utf-8")


def test_every_folder_of_modules_is_a_package_that_a_wheel_has():
    folders = {
        path.parent
        for room in ("data_contracts", "flows", "models", "sql", "tasks")
        for path in (ROOT / room).rglob("*.py")
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


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
