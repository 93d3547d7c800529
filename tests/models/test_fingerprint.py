"""Fingerprints: which edits of the source a model, or a stage's module, depends on."""

import shutil

import pytest

from oneclass.models import fingerprint
from oneclass.models.base import Model
from oneclass.models.registry import MODELS
from oneclass.models.wmf import WMF


@pytest.fixture
def package(tmp_path):
    """A copy of `models/` to edit."""
    return shutil.copytree(fingerprint.PACKAGE, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    "edited, expected",
    [
        ("slim/kernels.py", {"slim"}),
        ("popularity.py", {"popularity"}),
        ("mrf/sparse_kernels.py", {"mrf_dense", "ease", "mrf_sparse"}),
        ("autoencoders/training.py", {"cdae", "mult_dae", "mult_vae"}),
        ("generator/likes.py", set()),
        ("registry.py", set()),
        ("negatives/sampling.py", set(MODELS)),
        ("numerics/matmul.py", set(MODELS)),
        ("base.py", set(MODELS)),
        ("numba_cache.py", set(MODELS)),
    ],
)
def test_an_edit_moves_the_models_that_can_see_it(package, edited, expected):
    before = {name: fingerprint.fingerprint_model.__wrapped__(model, package) for name, model in MODELS.items()}
    with (package / edited).open("r+") as file:  # of a file that is there
        file.seek(0, 2)
        file.write("# a comment\n")
    after = {name: fingerprint.fingerprint_model.__wrapped__(model, package) for name, model in MODELS.items()}
    assert {name for name in MODELS if after[name] != before[name]} == expected


def test_equal_source_elsewhere_has_an_equal_fingerprint(package):
    assert fingerprint.fingerprint_model(WMF, package) == fingerprint.fingerprint_model(WMF)


def test_a_file_elsewhere_counts_itself(tmp_path):
    file = tmp_path / "stage.py"
    file.write_text("x = 1\n")
    before = fingerprint.fingerprint_file(file)
    file.write_text("x = 2\n")
    assert fingerprint.fingerprint_file(file) != before


def test_a_model_elsewhere_counts_its_own_file():
    class Own(Model):
        pass

    assert fingerprint.fingerprint_model(Own) not in {fingerprint.fingerprint_model(model) for model in MODELS.values()}
