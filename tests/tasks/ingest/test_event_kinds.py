"""Logs with a column of the kind of event, in every format, from file to recommendations."""

import json

import polars as pl
import pytest

from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows

EVENTS = [
    {"user_id": "ada", "item_id": "mug", "action": "view", "timestamp": "2026-03-01 09:00:00"},
    {"user_id": "ada", "item_id": "mug", "action": " purchase ", "timestamp": "2026-03-02 09:00:00"},
    {"user_id": "ben", "item_id": "mug", "action": "gift", "timestamp": "2026-03-02 10:00:00"},
    {"user_id": "ben", "item_id": "pot", "action": "", "timestamp": "2026-03-02 11:00:00"},
    {"user_id": "ben", "item_id": "pan", "action": "view", "timestamp": "2026-03-03 11:00:00"},
]
TOML = "max_reject_share = 0.5\n{0}\n[events]\npurchase = 5\nview = 0.5\n"


def write_csv(path):
    path.write_text("\n".join([",".join(EVENTS[0]), *(",".join(event.values()) for event in EVENTS)]) + "\n")


def write_headerless(path):
    path.write_text("\n".join("\t".join(event.values()) for event in EVENTS) + "\n")


def write_json(path):
    path.write_text("\n".join(json.dumps(event) for event in EVENTS) + "\n")


def write_parquet(path):
    pl.DataFrame(EVENTS).write_parquet(path)


def declare_kinds(home, text):
    (home.root / "datasets").mkdir(parents=True, exist_ok=True)
    (home.root / "datasets" / "small.toml").write_text(text)
    return load_dataset("small", home.root)


@pytest.mark.parametrize(
    ("write", "more"),
    [
        (write_csv, ""),
        (write_json, ""),
        (write_parquet, ""),
        (write_headerless, 'columns = {user = 1, item = 2, event = "3", time = 4}'),
    ],
)
def test_kinds_are_read_and_unknown_ones_rejected(home, tmp_path, write, more):
    write(log := tmp_path / "log")
    ingest(home, declare_kinds(home, TOML.format(more)), [log], "run")
    assert query_rows(home, "select user_id, item_id, event, value from raw.events order by line_number") == [
        ("ada", "mug", "view", 1), ("ada", "mug", "purchase", 1), ("ben", "pan", "view", 1),
    ]  # fmt: skip
    assert query_rows(home, "select reason from raw.rejects order by line_number") == [
        ("unknown kind of event gift",),
        ("names no kind of event",),
    ]


def test_a_log_without_the_column_of_kinds_is_refused(home, tmp_path):
    (log := tmp_path / "log.csv").write_text("user_id,item_id\nada,mug\n")
    with pytest.raises(InputError, match="Which column is the kind of event"):
        ingest(home, declare_kinds(home, TOML.format("")), [log], "run")


def test_a_kind_taken_out_later_breaks_the_contract(home, tmp_path):
    write_csv(log := tmp_path / "log.csv")
    ingest(home, declare_kinds(home, TOML.format("")), [log], "run")
    fewer = declare_kinds(home, "max_reject_share = 0.7\n[events]\nview = 1\n")
    with pytest.raises(Exception, match="kind_known"):
        ingest(home, fewer, [log], "again")
    ingest(home, fewer, [log], "anew", replace=True)


def test_replace_reads_unchanged_logs_again_by_other_bounds(home, tmp_path):
    (log := tmp_path / "log.csv").write_text("user_id,item_id,value\nada,mug,1\nada,pan,4\nben,pan,2\nben,pot,5\n")
    for night, bounds in enumerate(["", "value_min = 2", "", "value_max = 3", "value_max = 4"]):
        dataset = declare_kinds(home, f"max_reject_share = 1\n{bounds}")
        ingest(home, dataset, [log], f"run-{night}", replace=night > 0)
        low, high = dataset.value_min or 0, dataset.value_max or 9
        kept = [value for value in (1, 4, 2, 5) if low <= value <= high]
        assert query_rows(home, "select value from raw.events order by line_number") == [(value,) for value in kept]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[columns]\nevent = ["what"]', "state what each kind adds under"),
        ('layout = "adjacency"\n[events]\nview = 1', "needs a column with the kind"),
        ("[events]\nview = 'much'", "events.view"),
    ],
)
def test_a_data_set_s_file_that_cannot_be_is_refused(home, text, message):
    with pytest.raises(InputError, match=message):
        declare_kinds(home, text)


def test_half_life_days_may_stand_below_events(home):
    dataset = declare_kinds(home, "[events]\nview = 1\nhalf_life_days = 30\n")
    assert (dataset.events, dataset.half_life_days) == ({"view": 1.0}, 30)
    assert dataset.binarize_settings == {"event_weights": {"view": 1.0}, "half_life_days": 30}
