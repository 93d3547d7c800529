"""Fingerprints: which edits of the source a model depends on."""

import shutil

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


def moved(package, edited):
    """Names of the models whose fingerprint a comment in that file moves."""
    files = {name: package / files_of(model) for name, model in MODELS.items()}
    before = {name: fingerprint.of_file(file, package) for name, file in files.items()}
    with (package / edited).open("a") as file:
        file.write("# a comment\n")
    for cached in (fingerprint.of_file, fingerprint._digest):
        cached.cache_clear()
    return {name for name, file in files.items() if fingerprint.of_file(file, package) != before[name]}


def files_of(model):
    return model.__module__.removeprefix("models.").replace(".", "/") + ".py"


@pytest.mark.parametrize(
    "edited, expected",
    [
        ("slim/kernels.py", {"slim"}),
        ("mrf/sparse_kernels.py", {"mrf_dense", "mrf_sparse"}),
        ("autoencoders/training.py", {"cdae", "mult_dae", "mult_vae"}),
        ("negatives/draws.py", {"random_graph", "paired_symbols", "binary_matrix"}),
        ("evaluation/metrics.py", {"cdae", "mult_dae", "mult_vae"}),
        ("generator/story.py", set()),
        ("catalogue.py", set()),
        ("numerics/shards.py", set(MODELS)),
        ("base.py", set(MODELS)),
        ("kernel_code.py", set(MODELS)),
    ],
)
def test_an_edit_moves_the_models_that_can_see_it(package, edited, expected):
    assert moved(package, edited) == expected


def test_a_models_rooms_are_its_own_and_those_it_rests_on():
    for name, model in MODELS.items():
        rooms = fingerprint.rooms(fingerprint.PACKAGE / files_of(model))
        assert {files_of(model).split("/")[0].removesuffix(".py"), "base", "numerics"} | FIRST <= rooms, name
        assert "catalogue" not in rooms, name
    assert not {"negatives", "evaluation"} & (rooms_of(WMF) | rooms_of(SLIM))


def rooms_of(model):
    return fingerprint.rooms(fingerprint.PACKAGE / files_of(model))


def test_models_of_a_family_share_a_fingerprint_and_families_do_not():
    assert fingerprint.of_model(MODELS["mrf_dense"]) == fingerprint.of_model(MODELS["mrf_sparse"])
    assert fingerprint.of_model(WMF) != fingerprint.of_model(SLIM)


def test_equal_source_elsewhere_has_an_equal_fingerprint(package):
    assert fingerprint.of_file(package / "wmf" / "model.py", package) == fingerprint.of_model(WMF)


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("from models.a.inner import x", {"a"}),
        ("from models import a, b", {"a", "b"}),
        ("import models.a.inner", {"a"}),
        ("import models", set()),
        ("from modelsmith.a import x", set()),
        ("from ..a import inner", {"a"}),
        ("from . import own", {"room"}),
        ("def later():\n    from models.a import inner", {"a"}),
        ("try:\n    pass\nexcept ImportError:\n    import models.a", {"a"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import models.a\nelse:\n    import models.b", {"b"}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import models.a", set()),
        ("from models.c import y", {"c", "a"}),
    ],
)
def test_which_imports_count(tmp_path, statement, expected):
    package = tmp_path / "models"
    for room in ("a", "b", "room"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
    (package / "c.py").write_text("from models.a import inner\n")
    (package / "__init__.py").write_text("from models import first\n")
    (package / "first.py").touch()
    (package / "room" / "model.py").write_text(statement + "\n")
    assert fingerprint.rooms(package / "room" / "model.py", package) == expected | {"room", "__init__", "first"}


def test_a_file_outside_counts_itself_and_what_it_imports(tmp_path, package):
    file = tmp_path / "benchmark.py"
    file.write_text("from models.slim.model import SLIM\n")
    assert fingerprint.rooms(file, package) == rooms_of(SLIM)
    before = fingerprint.of_file(file, package)
    file.write_text("from models.slim.model import SLIM  # edited\n")
    for cached in (fingerprint.of_file, fingerprint._digest):
        cached.cache_clear()
    assert fingerprint.of_file(file, package) != before
