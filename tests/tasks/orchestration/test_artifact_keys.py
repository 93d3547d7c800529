"""Keys of artifacts: what Prefect takes, and different for each data set."""

import re

import pytest

from oneclass.tasks.orchestration.artifacts import artifact_key

NAMES = ["my-data", "my_data", "my.data", "My-Data", "MY_DATA", "my--data", "my-data-", "my-data_", "my-data.2"]


def test_names_that_differ_by_case_or_marks_have_keys_of_their_own():
    keys = [artifact_key(name, "summary") for name in NAMES]
    assert len({*keys}) == len(NAMES)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", key) for key in keys)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("ml-1m", "summary"), "ml-1m-summary"),
        (("demo", "contracts", "train slim on leave_one_out"), "demo-contracts-train-slim-on-leave-one-out"),
    ],
)
def test_a_usual_name_is_its_own_key(parts, key):
    assert artifact_key(*parts) == key
