"""A fit may begin at an earlier one that was trained on at most a hundredth of the edges that are targets now."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.stores.warm_start import build_start
from oneclass.tasks.train import train
from tests.conftest import two_tastes

SETTINGS = MODELS["wmf"].Settings(factors=4, iterations=1)


@pytest.mark.parametrize(("leaked", "begins"), [(0, True), (3, True), (4, False)])
def test_a_hundredth_of_the_targets_may_have_been_trained_on(home, caplog, leaked, begins):
    two_tastes(home)
    binarize(home, BinarizeSettings(), "run")
    digest = split(home, SplitSettings(), "run", protocols=["leave_one_out"], seed=1).digests[ALL_EDGES]
    fit = train(home, "run", protocol=ALL_EDGES, matrices_digest=digest, model="wmf", settings=SETTINGS, seed=0)
    before = matrices.load_split(home, digest)
    known = before.train.toarray() > 0
    trained, unknown = np.argwhere(known)[:leaked], np.argwhere(~known)[: 300 - leaked]
    rows, columns = np.concatenate([trained, unknown]).T
    targets = csr_matrix((np.ones(300, dtype=np.float32), (rows, columns)), shape=known.shape)
    assert targets.multiply(before.train).nnz == leaked
    now = replace(before, parts={"test": Part(before.train, targets, before.users, np.arange(len(known)))})
    start = build_start(home, MODELS["wmf"](SETTINGS, seed=0), fit, now)
    assert (start is not None) == begins
    assert ("trained on edges that have to be found now" in caplog.text) != begins
    if start is not None:  # users with a leaked target begin as new ones
        assert np.flatnonzero(start.users < 0).tolist() == sorted(set(rows[:leaked].tolist()))
