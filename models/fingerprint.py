"""Which source a model, or a compiled kernel, depends on, in one short digest.

The source is read as text: a room (a package of `models/`, or a module beside them) depends on itself and on every
room that it imports, directly or by way of others, and on what `models/__init__` imports, which runs before any of
them and settles how kernels are compiled. Imports for type checkers alone do not count.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def of_model(model: type) -> str:
    """Digest of everything in `models/` that an estimator's class depends on, its own room included."""
    return of_file(Path(inspect.getfile(model)))


@functools.cache
def of_file(file: Path, package: Path = PACKAGE) -> str:
    """Digest of the rooms that a file depends on; one outside of `models/` counts itself in."""
    file = file.resolve()
    sources = [source for room in sorted(rooms(file, package)) for source in _sources(room, package)]
    if not file.is_relative_to(package):
        sources.append(file)
    digest = hashlib.sha256()
    for source in sources:
        name = source.relative_to(package).as_posix() if source.is_relative_to(package) else source.name
        digest.update(f"{name} {_digest(source)}\n".encode())
    return digest.hexdigest()[:16]


@functools.cache
def rooms(file: Path, package: Path = PACKAGE) -> frozenset[str]:
    """Names of the rooms that a file depends on; none for a file outside of `models/` that imports nothing of it."""
    file = file.resolve()
    found: set[str] = set()
    waiting = {own_room(file, package)} if file.is_relative_to(package) else set(_imported(file, package))
    waiting |= {"__init__"} if waiting else set()
    while waiting:
        room = waiting.pop()
        found.add(room)
        for source in _sources(room, package):
            waiting |= _imported(source, package) - found
    return frozenset(found)


def own_room(file: Path, package: Path = PACKAGE) -> str:
    """The room that a file of `models/` lies in."""
    return file.resolve().relative_to(package).parts[0].removesuffix(".py")


def _sources(room: str, package: Path) -> list[Path]:
    folder = package / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


@functools.cache
def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


@functools.cache
def _imported(file: Path, package: Path) -> frozenset[str]:
    """Rooms that a file imports itself."""
    parts = (name.split(".") for name in _imported_names(file, package))
    candidates = {part[1] for part in parts if part[0] == "models" and len(part) > 1}
    return frozenset(room for room in candidates if all(source.exists() for source in _sources(room, package)))


def _imported_names(file: Path, package: Path) -> Iterator[str]:
    """Full names of the modules, or of what is taken from them, in every import that runs."""
    inside = file.relative_to(package).parts[:-1] if file.is_relative_to(package) else ()
    waiting: list[ast.AST] = [ast.parse(file.read_bytes(), filename=str(file))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dotted = "." * node.level + (node.module or "")
            module = importlib.util.resolve_name(dotted, ".".join(("models", *inside)))
            yield from (f"{module}.{alias.name}" for alias in node.names)
        only_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        inner = node.orelse if only_for_types else ast.iter_child_nodes(node)
        waiting.extend(child for child in inner if not isinstance(child, ast.expr))  # an expression imports nothing
