"""Small one-class data of known structure, shared by the tests of models."""

import pytest
from scipy.sparse import csr_matrix

from oneclass.testing import make_checkerboard, make_long_tailed


@pytest.fixture(scope="session")
def checkerboard() -> csr_matrix:
    return make_checkerboard()


@pytest.fixture(scope="session")
def long_tailed() -> csr_matrix:
    return make_long_tailed()
