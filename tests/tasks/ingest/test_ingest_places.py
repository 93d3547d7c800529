"""The places of items in their lines, against the file parsed in Python; other formats have none."""

import numpy as np
import pytest

from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import ingest
from oneclass.tasks.stores import warehouse

PLACES = "select file_id, line_number, place, item_id from raw.places order by all"
LISTS = Dataset(name="lists", title="lists", layout="adjacency", max_reject_share=0.5)
COUNTED = Dataset(name="lists", title="lists", layout="counted_adjacency", max_reject_share=0.5)


def places(home):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute(PLACES).fetchall()


def by_hand(text, file_id=1):
    return sorted(
        (file_id, number, place, item)
        for number, line in enumerate(text.splitlines(), 1)
        for place, item in enumerate(line.split()[1:], 1)
    )


def log(seed, counted=False, lines=3000):
    generator = np.random.default_rng(seed)
    for user in range(lines):
        items = generator.integers(500, size=generator.integers(0, 60))  # some of them twice
        yield " ".join(map(str, [len(items) if counted else user, *items])) + "\n"


@pytest.mark.slow
def test_places_are_those_of_the_file_and_survive_what_comes_after(home, tmp_path):
    for dataset, counted in ((LISTS, False), (COUNTED, True)):
        file = tmp_path / "log.txt"
        file.write_text("".join(log(1, counted)))
        ingest(home, dataset, [file], f"run of {dataset.layout}", replace=True)
        assert places(home) == by_hand(file.read_text())
    before = places(home)
    other = tmp_path / "other.txt"
    other.write_text("".join(log(2, counted=True, lines=10)))
    ingest(home, COUNTED, [other, file], "run")
    assert places(home) == sorted(before + by_hand(other.read_text(), 2))


@pytest.mark.slow
def test_a_line_that_cannot_be_read_has_no_places_and_a_changed_file_has_new_ones(home, tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("2 7 8\n3 9 9\n\n2 5 5\n")
    ingest(home, COUNTED, [file], "run-1")
    assert places(home) == [(1, 1, 1, "7"), (1, 1, 2, "8"), (1, 4, 1, "5"), (1, 4, 2, "5")]
    file.write_text("1 8\n")
    ingest(home, COUNTED, [file], "run-2")
    assert places(home) == [(1, 1, 1, "8")]


def test_logs_of_one_event_a_line_have_none(home, tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user_id,item_id,rating\na,x,5\n")
    ingest(home, datasets.load_dataset("ml-1m", tmp_path), [file], "run")
    assert places(home) == []
