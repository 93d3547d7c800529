"""Popularity is the training degrees and nothing else."""

import numpy as np

from models.popularity import Popularity


def test_scores_are_training_degrees(long_tailed):
    model = Popularity().fit(long_tailed)
    expected = (long_tailed.toarray() > 0).sum(axis=0)
    np.testing.assert_array_equal(model.scores(long_tailed[:2]), [expected, expected])


def test_repeated_events_count_once(long_tailed):
    counts = long_tailed.copy()
    counts.data[:] = 7
    np.testing.assert_array_equal(Popularity().fit(counts).item_degrees, Popularity().fit(long_tailed).item_degrees)
