"""Fingerprints: which edits of the source a model, or a file of kernels, depends on."""

import ast
import shutil
from pathlib import Path

import pytest

from models import fingerprint
from models.catalogue import MODELS
from models.slim import SLIM
from models.wmf import WMF

FIRST = {"__init__", "kernel_code", "kernel_cache", "fingerprint"}  # what runs before any model is imported


@pytest.fixture
def package(tmp_path):
    """A copy of `models/` to edit."""
    return shutil.copytree(fingerprint.PACKAGE, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))


def moved(package, edited, names, **how):
    """Which of these files' fingerprints a comment in one file moves."""
    before = {name: fingerprint.of_file(package / name, package, **how) for name in names}
    with (package / edited).open("a") as file:
        file.write("# a comment\n")
    for cached in (fingerprint.of_file, fingerprint._digest):
        cached.cache_clear()
    return {name for name in names if fingerprint.of_file(package / name, package, **how) != before[name]}


def file_of(model):
    return model.__module__.removeprefix("models.").replace(".", "/") + ".py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "edited, expected",
    [
        ("slim/kernels.py", {"slim"}),
        ("mrf/sparse_kernels.py", {"mrf_dense", "mrf_sparse"}),
        ("autoencoders/training.py", {"cdae", "mult_dae", "mult_vae"}),
        ("negatives/draws.py", {"random_graph", "paired_symbols", "binary_matrix"}),
        ("evaluation/metrics.py", {"cdae", "mult_dae", "mult_vae", "blend"}),
        ("generator/story.py", set()),
        ("catalogue.py", set()),
        ("numerics/shards.py", set(MODELS)),
        ("base.py", set(MODELS)),
        ("kernel_code.py", set(MODELS)),
    ],
)
def test_an_edit_moves_the_models_that_can_see_it(package, edited, expected):
    names = {file_of(model) for model in MODELS.values()}
    assert moved(package, edited, names, whole_rooms=True) == {file_of(MODELS[name]) for name in expected}


@pytest.mark.parametrize(
    "edited, expected",
    [
        ("base.py", set()),
        ("paired_symbols/model.py", set()),
        ("paired_symbols/__init__.py", set()),
        ("paired_symbols/kernels.py", {"paired_symbols/kernels.py"}),
        ("paired_symbols/edges.py", {"paired_symbols/kernels.py"}),
        ("numerics/spd_lane_solvers.py", {"paired_symbols/kernels.py", "wmf/kernels.py"}),
        ("numerics/lanes.py", {"paired_symbols/kernels.py", "slim/kernels.py", "wmf/kernels.py"}),
        ("numerics/selection.py", {"slim/kernels.py"}),
        ("kernel_code.py", {"paired_symbols/kernels.py", "slim/kernels.py", "wmf/kernels.py"}),
    ],
)
def test_an_edit_moves_the_kernels_of_the_files_that_can_see_it(package, edited, expected):
    assert moved(package, edited, {"paired_symbols/kernels.py", "slim/kernels.py", "wmf/kernels.py"}) == expected


def test_a_packages_init_re_exports_and_does_no_more():
    for file in fingerprint.PACKAGE.glob("*/**/__init__.py"):
        docstring, *statements = ast.parse(file.read_text()).body
        assert isinstance(docstring, ast.Expr), file
        exports = [statement for statement in statements if not isinstance(statement, ast.ImportFrom)]
        assert all(ast.unparse(statement).startswith("__all__ = ") for statement in exports), file


def test_a_models_rooms_are_its_own_and_those_it_rests_on():
    for name, model in MODELS.items():
        rooms = rooms_of(model)
        assert {file_of(model).split("/")[0].removesuffix(".py"), "base", "numerics"} | FIRST <= rooms, name
        assert "catalogue" not in rooms, name
    assert not {"negatives", "evaluation"} & (rooms_of(WMF) | rooms_of(SLIM))


def rooms_of(model):
    return rooms(fingerprint.PACKAGE / file_of(model), fingerprint.PACKAGE)


def rooms(file, package):
    found = fingerprint.files(file, package, whole_rooms=True)
    return {source.relative_to(package).parts[0].removesuffix(".py") for source in found}


def test_models_of_a_family_share_a_fingerprint_and_families_do_not():
    assert fingerprint.of_model(MODELS["mrf_dense"]) == fingerprint.of_model(MODELS["mrf_sparse"])
    assert fingerprint.of_model(WMF) != fingerprint.of_model(SLIM)


def test_equal_source_elsewhere_has_an_equal_fingerprint(package):
    assert fingerprint.of_file(package / "wmf" / "model.py", package, whole_rooms=True) == fingerprint.of_model(WMF)


A, B, INNER = "a/__init__.py", "b/__init__.py", "a/inner.py"


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("from models.a.inner import x", {INNER}),
        ("from models.a import inner", {INNER}),
        ("from models.a import re_exported", {A}),
        ("from models.a import *", {A}),
        ("from models import a, b", {A, B}),
        ("import models.a.inner", {INNER}),
        ("import models", set()),
        ("from modelsmith.a import x", set()),
        ("from ..a import inner", {INNER}),
        ("from . import own", {"room/own.py"}),
        ("def later():\n    from models.a import inner", {INNER}),
        ("try:\n    pass\nexcept ImportError:\n    import models.a", {A}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import models.a\nelse:\n    import models.b", {B}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import models.a", set()),
        ("from models.c import y", {"c.py", INNER}),
    ],
)
def test_which_imports_count(tmp_path, statement, expected):
    package = tmp_path / "models"
    for room in ("a", "b", "room"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
    (package / INNER).touch()
    (package / "c.py").write_text("from models.a import inner\n")
    (package / "__init__.py").write_text("from models import first\n")
    (package / "first.py").touch()
    (package / "room" / "own.py").touch()
    file = package / "room" / "model.py"
    file.write_text(statement + "\n")
    named = {source.relative_to(package).as_posix() for source in fingerprint.files(file, package)}
    assert named == expected | {"room/model.py", "__init__.py", "first.py"}
    of_rooms = {Path(name).parts[0].removesuffix(".py") for name in expected}
    assert rooms(file, package) == of_rooms | {"room", "__init__", "first"}


def test_a_file_outside_counts_itself_and_what_it_imports(tmp_path, package):
    file = tmp_path / "benchmark.py"
    file.write_text("from models.slim.model import SLIM\n")
    assert rooms(file, package) == rooms_of(SLIM)
    before = fingerprint.of_file(file, package)
    file.write_text("from models.slim.model import SLIM  # edited\n")
    for cached in (fingerprint.of_file, fingerprint._digest):
        cached.cache_clear()
    assert fingerprint.of_file(file, package) != before
