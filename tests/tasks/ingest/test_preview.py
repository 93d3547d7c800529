"""A preview of logs: what a person needs to see before a run, and the data set's file."""

import json
import tomllib

import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import preview
from oneclass.tasks.ingest.preview import format_preview, format_toml, inspect_logs, preview_logs

LOG = (
    "Kunde;Artikel;Menge;Datum\n"
    + "".join(f"k{n % 7};a{n};1,5;{n % 28 + 1}.3.2024\n" for n in range(56))
    + "k1;;1,5;1.3.2024\n"
)
COLUMNS = {"user": ("Kunde",), "item": ("Artikel",), "value": ("Menge",), "time": ("Datum",)}


def test_a_preview_counts_events_and_losses(tmp_path):
    (path := tmp_path / "orders.csv").write_text(LOG)
    dataset = Dataset(name="mine", columns=COLUMNS, binarize={"min_user_edges": 9})
    found = preview_logs(dataset, [path])
    assert (found.counts["events"], found.counts["users"], found.counts["items"], found.counts["pairs"]) == (
        56,
        7,
        56,
        56,
    )
    assert found.rejects.rows() == [("names no item", 1, 58, "k1;;1,5;1.3.2024")]
    assert [(step.lost, step.remaining, step.users, step.items) for step in found.funnel] == [
        (0, 57, None, None),
        (1, 56, None, None),
        (0, 56, None, None),
        (0, 56, 7, 56),
        (56, 0, 0, 0),
    ]
    text = format_preview(found)
    for part in (
        str(path),
        "user   <- Kunde",
        "times as %d.%m.%Y",
        "56 events of 7 users",
        "names no item",
        "2024-03-28",
    ):
        assert part in text


def test_the_file_that_is_printed_reads_the_log_in_the_same_way(tmp_path):
    (path := tmp_path / "orders.csv").write_text(LOG)
    first = preview_logs(Dataset(name="mine", columns=COLUMNS), [path])
    again = preview_logs(Dataset(name="mine", **tomllib.loads(format_toml(first))), [path])
    assert again.events.equals(first.events) and again.counts == first.counts


@pytest.mark.parametrize(
    "content, names",
    [
        ('{"user": {"id": 1}, "item_id": "a", "value": 2}\n', {"user": "user.id", "item": "item_id", "value": "value"}),
        ("user item value\n1 u1 i1 5\n2 u2 i2 6\n", {"user": "user", "item": "item", "value": "value"}),
    ],
)
def test_columns_are_shown_by_the_names_of_the_log(tmp_path, content, names):
    (path := tmp_path / "log").write_text(content)
    found = preview_logs(Dataset(name="mine", columns={"user": ("user", "user.id")}), [path])
    assert preview.column_names(found.layouts[0][1]) == names


def test_of_a_large_log_the_beginning_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "SAMPLE_BYTES", 1000)
    (path := tmp_path / "log.csv").write_text("user,item\n" + "".join(f"u{n},i{n}\n" for n in range(1000)))
    found = preview_logs(Dataset(name="mine"), [path])
    assert 50 < found.counts["events"] < 200 and found.layouts[0][2] and found.layouts[0][0] == str(path)


def test_a_refusal_names_the_log_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "SAMPLE_BYTES", 1000)
    (path := tmp_path / "log.csv").write_text("who,what\n" + "u,i\n" * 1000)
    with pytest.raises(InputError, match=f"^{path}, line 1: has the columns who, what"):
        preview_logs(Dataset(name="mine"), [path])


def test_a_user_with_a_fifth_of_all_events_is_named(tmp_path):
    (path := tmp_path / "log.jsonl").write_text(
        "".join(json.dumps({"user": u, "item": i}) + "\n" for i in range(9) for u in ("-1", i))
    )
    assert "The user '-1' has 50% of all events" in format_preview(preview_logs(Dataset(name="mine"), [path]))


def test_rejects_that_a_run_would_refuse_are_explained(tmp_path):
    (path := tmp_path / "log.csv").write_text("user,item,rating\n" + "a,x,good\n" * 9)
    assert "A run would refuse this: " in (text := format_preview(preview_logs(Dataset(name="mine"), [path])))
    assert f"{path}, line 2: value is not a number" in text


def test_written_columns_are_those_that_the_names_leave_no_doubt_of(tmp_path):
    (path := tmp_path / "orders.csv").write_text(LOG)
    inspect_logs(tmp_path, Dataset(name="mine"), [str(path)], write=True)
    declared = tomllib.loads((tmp_path / "datasets" / "mine.toml").read_text())
    assert {role: tuple(names) for role, names in declared["columns"].items()} == COLUMNS
    with pytest.raises(InputError, match="exists already"):
        inspect_logs(tmp_path, Dataset(name="mine"), [str(path)], write=True)
