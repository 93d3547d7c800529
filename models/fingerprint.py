"""Which source a model, or a compiled kernel, depends on, in one short digest.

The source is read as text. A kernel depends on its file and on every file that this one imports, directly or by way
of others. A model depends on whole rooms (packages of `models/`, or modules beside them): its own, and those of all
files that it imports. Both depend on what `models/__init__.py` imports, which runs first and settles how kernels are
compiled. Imports for type checkers alone do not count.
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
    """Digest of everything in `models/` that an estimator's class depends on."""
    return of_file(Path(inspect.getfile(model)), whole_rooms=True)


@functools.cache
def of_file(file: Path, package: Path = PACKAGE, *, whole_rooms: bool = False) -> str:
    """Digest of the files that a file depends on, itself included."""
    digest = hashlib.sha256()
    for source in sorted(files(file, package, whole_rooms=whole_rooms) | {file.resolve()}):
        name = source.relative_to(package).as_posix() if source.is_relative_to(package) else source.name
        digest.update(f"{name} {_digest(source)}\n".encode())
    return digest.hexdigest()[:16]


@functools.cache
def files(file: Path, package: Path = PACKAGE, *, whole_rooms: bool = False) -> frozenset[Path]:
    """Files of `models/` that a file depends on; none for a file outside of `models/` that imports nothing of it."""
    file = file.resolve()
    found: set[Path] = set()
    waiting = {file} if file.is_relative_to(package) else set(_imported(file, package))
    waiting |= {package / "__init__.py"} if waiting else set()
    while waiting:
        source = waiting.pop()
        found.add(source)
        waiting |= _imported(source, package) - found
        if whole_rooms:
            waiting |= _room(source, package) - found
    return frozenset(found)


def dotted_name(file: Path, package: Path = PACKAGE) -> str:
    """A file's name as a module of `models/`; of a file elsewhere its own name alone."""
    file = file.resolve().with_suffix("")
    return ".".join(file.relative_to(package).parts) if file.is_relative_to(package) else file.name


@functools.cache
def _room(file: Path, package: Path) -> frozenset[Path]:
    """All files of the room that a file of `models/` lies in."""
    room = package / file.relative_to(package).parts[0]
    return frozenset(room.rglob("*.py") if room.is_dir() else [room])


@functools.cache
def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


@functools.cache
def _imported(file: Path, package: Path) -> frozenset[Path]:
    """Files of `models/` that a file imports itself."""
    modules = (_module(name, package) for name in _imported_names(file, package) if name.startswith("models."))
    return frozenset(module for module in modules if module)


def _module(name: str, package: Path) -> Path | None:
    """The file that an imported name comes from: its module, or the `__init__` of the package that re-exports it.

    The `__init__` of a package that lies on the way to a module does not count: it re-exports, and does no more.
    """
    parts = name.split(".")[1:]
    while parts:
        place = package.joinpath(*parts)
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.exists():
            return module
        parts.pop()
    return None


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
