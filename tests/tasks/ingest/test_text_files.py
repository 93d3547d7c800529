"""Text logs in other encodings, with comments, and with a line of totals."""

import hashlib

import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import containers
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows

SHOP = Dataset(name="shop", title="shop", files=("*.csv",))
EVENTS = "select user_id, item_id from raw.events order by line_number"


def test_a_log_in_another_encoding_is_read_in_pieces_to_its_end(home, tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "CHUNK_BYTES", 33)  # within a character of two bytes
    log = tmp_path / "log.csv"
    log.write_bytes("\n".join(["user_id,item_id", *(f"zoë{n},é{n % 7}" for n in range(200)), ""]).encode("utf-16"))
    assert ingest(home, SHOP, [log], "run").total_events == 200
    assert query_rows(home, EVENTS) == [(f"zoë{n}", f"é{n % 7}") for n in range(200)]
    assert query_rows(home, "select sha256 from operations.log_files") == [
        (hashlib.sha256(log.read_bytes()).hexdigest(),)
    ]


@pytest.mark.parametrize(
    ("head", "found"),
    [("# exported on Monday", [("a", "x"), ("b", "y")]), ("sep=,", [("a", "x"), ("#1", "x"), ("b", "y")])],
)
def test_lines_that_begin_with_a_hash_are_comments_only_below_one(home, tmp_path, head, found):
    log = tmp_path / "log.csv"
    log.write_text(f"{head}\nuser_id,item_id\na,x\n#1,x\nb,y\n")
    ingest(home, SHOP, [log], "run")
    assert query_rows(home, EVENTS) == found


def test_a_line_of_totals_that_is_left_out_is_named(home, tmp_path, caplog):
    log = tmp_path / "log.csv"
    log.write_text("user_id,item_id,rating\na,x,5\nb,y,4\nTotal,,9\n")
    assert ingest(home, SHOP, [log], "run").total_events == 2
    assert "a line is left out, as no event: Total,,9" in caplog.text
