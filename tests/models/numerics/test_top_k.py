"""What added most against a stable sort; `top_items` is tested with the rankings (tests/models/evaluation)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.models.numerics.top_k import top_contributions

ADDED = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0, 3.0, np.nan, np.inf]), max_size=12)


@settings(max_examples=50, deadline=None)  # the first example compiles
@given(st.lists(ADDED, min_size=1, max_size=4), st.integers(1, 4))
def test_what_added_most_is_named_and_the_upper_of_equals_comes_first(columns, count):
    rows = min(map(len, columns))
    added = np.array([column[:rows] for column in columns], dtype=np.float32).T.reshape(rows, len(columns))
    found = top_contributions(added, np.arange(rows) + 100, count)
    for of_column, column in zip(found, added.T, strict=True):
        above = [row for row in range(rows) if column[row] > 0]
        best = sorted(above, key=lambda row: -column[row])[:count]
        assert of_column.tolist() == [row + 100 for row in best] + [-1] * (count - len(best))
