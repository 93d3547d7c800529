"""Popularity is the training degrees and nothing else."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics import validation
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.models.popularity import Popularity, PopularitySettings
from tests.models.block_fits import Backwards, store_rows


def test_scores_are_training_degrees(long_tailed):
    model = Popularity().fit(long_tailed)
    expected = (long_tailed.toarray() > 0).sum(axis=0)
    np.testing.assert_array_equal(model.scores(long_tailed[:2]), [expected, expected])


def test_repeated_events_count_once(long_tailed):
    likes = long_tailed.copy()
    likes.data[:] = 7
    np.testing.assert_array_equal(Popularity().fit(likes).item_degrees, Popularity().fit(long_tailed).item_degrees)


@pytest.mark.parametrize("count", [2, 7, 1000])
def test_blocks_of_users_have_the_counts_of_one_machine(long_tailed, count, tmp_path):
    options = FitOptions(workers=Backwards(), rows=store_rows(long_tailed, tmp_path), scratch=tmp_path / "seen by all")
    one, many = (Popularity(PopularitySettings(blocks=blocks)).fit(long_tailed, options) for blocks in (1, count))
    assert many.item_degrees.dtype == one.item_degrees.dtype == np.int64
    np.testing.assert_array_equal(many.item_degrees, one.item_degrees)
    assert not list((tmp_path / "seen by all").iterdir())


@pytest.mark.parametrize("blocks", [1, 3])
def test_what_is_no_matrix_of_counts_is_refused_by_blocks_as_by_one_machine(long_tailed, blocks):
    def refused(matrix, error, message):
        with pytest.raises(error, match=message):
            Popularity(PopularitySettings(blocks=blocks)).fit(matrix)

    wrong = long_tailed.copy()
    wrong.data[wrong.indptr[250]] = np.nan
    refused(wrong, ValueError, f"user 250 .row., item {wrong.indices[wrong.indptr[250]]}: the count nan")
    refused(long_tailed.tocsc(), TypeError, "a csc_matrix where")
    refused(csr_matrix((3, 4), dtype=np.float32), ValueError, "has no edge")


def test_degrees_are_counted_some_entries_at_a_time(long_tailed, monkeypatch):
    expected = count_item_degrees(long_tailed)
    monkeypatch.setattr(validation, "ENTRIES_PER_CHUNK", 100)
    np.testing.assert_array_equal(count_item_degrees(long_tailed), expected)
    np.testing.assert_array_equal(expected, (long_tailed.toarray() > 0).sum(axis=0))
