"""A test without its log says what to put where."""

import pytest

from tests import conftest


def test_an_absent_log_is_reported_with_its_place_and_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(conftest, "REAL_LOGS", tmp_path.parent / "logs")
    with pytest.raises(pytest.skip.Exception) as skipped:
        conftest.real_log("ml-100k/u.data")
    assert str(skipped.value) == (
        "ml-100k/u.data is not there: put u.data into ../logs/ml-100k (from grouplens.org/datasets/movielens/100k)"
    )
    (tmp_path.parent / "logs" / "ml-100k").mkdir(parents=True)
    (tmp_path.parent / "logs" / "ml-100k" / "u.data").touch()
    assert conftest.real_log("ml-100k/u.data").exists()
