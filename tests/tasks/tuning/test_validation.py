"""The validation part of each protocol, and samples of it."""

import shutil

import numpy as np
import pytest

from oneclass.tasks.stores import checksums, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import home_in
from tests.tasks.tuning.toy import PROTOCOLS, split_toy_log


@pytest.fixture(scope="module")
def split_once(tmp_path_factory):
    home = home_in(tmp_path_factory.mktemp("split"))
    return home, split_toy_log(home)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_test_part_is_not_read(split_once, tmp_path, protocol):
    home, digests = split_once
    damaged = Home(tmp_path, home.dataset, home.limits)
    shutil.copytree(home.matrices, damaged.matrices)
    files = list((damaged.matrices / digests[protocol]).glob("test_*.npy"))
    assert len(files) >= 4
    for file in files:
        file.write_bytes(b"no array")
    with pytest.raises(checksums.DamagedFile):
        matrices.load_split(damaged, digests[protocol])
    found, expected = (load_validation(of, protocol, digests[protocol], 3) for of in (damaged, home))
    assert found.users == expected.users > 0 and (found.train != expected.train).nnz == 0
    assert (found.part.targets != expected.part.targets).nnz == 0


def test_the_validation_part_of_unseen_users_is_the_splits_own(split_once):
    home, digests = split_once
    split_ = matrices.load_split(home, digests["strong_generalization"])
    found = load_validation(home, "strong_generalization", digests["strong_generalization"], 3)
    assert found.metric == "ndcg@100" and found.users == len(split_.parts["validation"].users)
    assert (found.train != split_.train).nnz == 0
    np.testing.assert_array_equal(found.part.users, split_.parts["validation"].users)


@pytest.mark.parametrize(("protocol", "metric"), [("leave_one_out", "mean_rank"), ("given", "ndcg@20")])
def test_elsewhere_a_validation_part_is_cut_from_the_training_edges(split_once, protocol, metric):
    home, digests = split_once
    train = matrices.load_split(home, digests[protocol]).train
    found = load_validation(home, protocol, digests[protocol], 3)
    degrees = np.diff(train.indptr)
    expected = (degrees >= 2).astype(int) if protocol == "leave_one_out" else degrees // 5
    held_out = np.zeros(len(degrees), dtype=int)
    held_out[found.part.rows] = np.diff(found.part.targets.indptr)
    np.testing.assert_array_equal(held_out, expected)
    put_back = found.train.copy().tolil()
    put_back[found.part.rows] += found.part.targets
    np.testing.assert_array_equal(put_back.toarray(), train.toarray())
    assert found.train.nnz + found.part.targets.nnz == train.nnz
    assert (found.part.histories != found.train[found.part.rows]).nnz == 0 and found.metric == metric


@pytest.mark.parametrize("protocol", ["strong_generalization", "leave_one_out"])
def test_a_sample_has_some_users_with_all_of_their_edges_and_the_items_that_they_have(split_once, protocol):
    home, digests = split_once
    whole, some = (load_validation(home, protocol, digests[protocol], 1, edges) for edges in (None, 500))
    assert 400 < some.train.nnz < 600 and some.train.shape[1] <= whole.train.shape[1]
    assert np.bincount(some.train.indices, minlength=some.train.shape[1]).min() >= 1
    assert some.part.histories.shape == some.part.targets.shape and some.part.targets.shape[1] == some.train.shape[1]
    assert set(np.diff(some.train.indptr)) <= set(np.diff(whole.train.indptr))
    if protocol == "leave_one_out":  # the users who judge are those who train
        assert some.part.rows.max() < some.train.shape[0]
        assert (some.part.histories != some.train[some.part.rows]).nnz == 0
        assert (np.diff(some.part.targets.indptr) == 1).all()
    else:
        assert some.part.rows is None
