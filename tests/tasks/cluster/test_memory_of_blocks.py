"""Fits by blocks of users on workers that have declared little memory, with a real scheduler and real processes."""

import pytest

from oneclass.models.memory_estimates import estimate_coordinator_bytes
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize import BinarizeSettings, binarize
from oneclass.tasks.cluster import ClusterSettings, open_executor
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.memory_errors import KERNEL_BYTES
from oneclass.tasks.split import SplitSettings, split
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.train import load_or_fit
from tests.conftest import two_tastes
from tests.tasks.cluster.conftest import started

pytestmark = pytest.mark.slow

DECLARED = 140_000  # bytes; room for a block of a few users of K = 128


@pytest.fixture
def digest(home):
    two_tastes(home)
    binarize(home, BinarizeSettings(), "a")
    return split(home, SplitSettings(), "a", protocols=["leave_one_out"], seed=1).digests["leave_one_out"]


def random_graph(**settings):
    return MODELS["random_graph"].Settings(**{"factors": 100, "iterations": 2, **settings})


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    """A cluster of one worker."""
    with started(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.worker("--nthreads", "1", "--resources", f"memory={DECLARED}")
        yield cluster


def test_a_coordinator_that_has_no_room_says_so_before_it_begins(little, home, digest, monkeypatch):
    settings, shape = random_graph(blocks=30), matrices.load_split(home, digest).train.shape
    sizes = MODELS["random_graph"].block_sizes(settings, shape[1])
    needed = estimate_coordinator_bytes(sizes, settings.blocks, shape, 0) + KERNEL_BYTES
    with open_executor(ClusterSettings(address=little.address), home) as executor:
        monkeypatch.setattr("oneclass.tasks.memory_errors.resources.free_memory", lambda: needed - 1)
        with pytest.raises(OneclassError, match=r"train: random_graph \(leave_one_out\): needs about \d+ MB of memory"):
            load_or_fit(home, digest, "random_graph", settings, 1, workers=executor)
        monkeypatch.setattr("oneclass.tasks.memory_errors.resources.free_memory", lambda: needed)
        assert load_or_fit(home, digest, "random_graph", settings, 1, workers=executor)
        with pytest.raises(OneclassError, match=r"needs about \d+ MB of memory"):
            load_or_fit(home, digest, "random_graph", settings, 2)  # here the blocks are in this process, too


def test_a_block_that_no_worker_has_room_for_is_refused_and_smaller_ones_are_fitted(little, home, digest):
    with open_executor(ClusterSettings(address=little.address), home) as executor:
        with pytest.raises(
            OneclassError,
            match=r"random_graph \(leave_one_out\): a block of users needs about .* take more blocks \(--set random_graph\.bl",
        ):
            load_or_fit(home, digest, "random_graph", random_graph(blocks=2), 1, workers=executor)
        with pytest.raises(OneclassError, match="its items alone need .* in each block: give a worker more memory"):
            load_or_fit(home, digest, "random_graph", random_graph(blocks=2, factors=512), 1, workers=executor)
        assert not list(home.models.rglob("*.npy")) and not list(home.spill.glob("random_graph-*"))
        fit = load_or_fit(home, digest, "random_graph", random_graph(blocks=30), 1, workers=executor)
        assert fits.find_fit(home, "random_graph", fit.digest) == fit
