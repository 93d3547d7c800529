"""Every reader on fifty hostile logs against a naive oracle; `python -m benchmarks.reliability.fuzz_readers` tries more."""

import pytest

from benchmarks.reliability import fuzz_readers
from oneclass.tasks.ingest import statements


def test_no_hostile_log_is_misread(tmp_path):
    counts, findings = fuzz_readers.fuzz(tmp_path, seed=0, rounds=1, together=10)
    assert [f"{one.seed}: {one.difference}" for one in findings] == []
    assert sum(counts.values()) == 50 and {name for name, _ in counts} == set(fuzz_readers.FORMATS)


@pytest.mark.parametrize("format, broken", [("no header", "below"), ("parquet", "above")])
def test_a_reader_that_misreads_is_found(tmp_path, monkeypatch, format, broken):
    bounds = statements.event_bounds
    monkeypatch.setattr(statements, "event_bounds", lambda dataset: bounds(dataset) | {broken: "value = 5"})
    monkeypatch.setattr(fuzz_readers, "FORMATS", {format: fuzz_readers.FORMATS[format]})
    _, findings = fuzz_readers.fuzz(tmp_path, seed=0, rounds=1, together=10)
    assert findings and {one.format for one in findings} == {format}
