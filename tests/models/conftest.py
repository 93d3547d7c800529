"""Small one-class data of known structure, shared by the tests of models."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix


def from_dense(likes: np.ndarray) -> csr_matrix:
    """CSR with sorted columns and one event an edge."""
    matrix = csr_matrix(likes.astype(np.float32))
    matrix.sort_indices()
    return matrix


@pytest.fixture(scope="session")
def checkerboard() -> csr_matrix:
    """80 users x 40 items: even users like 12 of the 20 even items each, odd users 12 of the odd ones."""
    rng = np.random.default_rng(5)
    likes = np.zeros((80, 40))
    for user in range(80):
        own = np.arange(user % 2, 40, 2)
        likes[user, rng.choice(own, 12, replace=False)] = 1
    return from_dense(likes)


@pytest.fixture(scope="session")
def long_tailed() -> csr_matrix:
    """300 users x 120 items with a long tail of popularity and two planted traits; about 5,000 edges."""
    rng = np.random.default_rng(6)
    traits = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 120))
    odds = traits - 1.2 * np.log(np.arange(1, 121)) + 1.2
    likes = rng.random((300, 120)) < 1 / (1 + np.exp(-odds))
    likes[likes.sum(axis=1) == 0, 0] = True
    likes[0, likes.sum(axis=0) == 0] = True
    return from_dense(likes)
