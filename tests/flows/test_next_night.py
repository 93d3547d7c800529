"""Two nights of one log, cut in two: what the second publishes is what one run over both halves does, bit for bit."""

import pytest

from oneclass.flows import backfill
from tests.flows.test_backfill import contents

pytestmark = pytest.mark.slow

DATASET = "ml-latest-small"
MODELS = ("mrf_dense", "mrf_sparse", "slim")
PLAN = ["--dataset", DATASET, "--models", ",".join(("popularity", *MODELS)), "--threads", "2"]
SETTINGS = ["--set", "binarize.threshold=1", "train.tune=off", "publish.model=slim"]


@pytest.fixture
def halves(ratings, tmp_path):
    """The first users, and the others with a line more of one that is known; and both."""
    header, *lines = ratings.read_text().splitlines()
    files = [tmp_path / f"ratings-{number}.csv" for number in (1, 2)]
    for file, part in zip(files, (lines[1:1470], [lines[0], *lines[1470:1540]]), strict=True):
        file.write_text("\n".join([header, *part]) + "\n")
    return files


def night(home, *files):
    assert backfill.main([*PLAN, "--home", str(home), "--source", *map(str, files), *SETTINGS]) == 0


def arrays(home, pattern):
    folder = home / DATASET
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.glob(pattern)}


def test_the_second_night_publishes_what_a_run_over_everything_does(prefect_server, halves, tmp_path):
    nights, whole = tmp_path / "nights", tmp_path / "whole"
    night(nights, halves[0])
    night(nights, halves[1])
    night(whole, *halves)
    assert contents(nights) == contents(whole)
    for model in MODELS:
        of_whole = arrays(whole, f"models/{model}/*/*.npy")
        of_nights = arrays(nights, f"models/{model}/*/*.npy")
        assert of_whole and of_whole.items() <= of_nights.items()
