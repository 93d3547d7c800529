"""Random hostile logs are read as a naive reader reads them, which finds a reader that misreads."""

import pytest

from benchmarks import fuzz_readers
from oneclass.tasks.ingest import load


def test_no_hostile_log_is_misread(tmp_path):
    counts, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert [f"{one.seed}: {one.difference}" for one in findings] == []
    assert sum(counts.values()) == 50 and {name for name, _ in counts} == set(fuzz_readers.FORMATS)


@pytest.mark.parametrize("format, broken", [("no header", "low"), ("parquet", "high")])
def test_a_reader_that_misreads_is_found(tmp_path, monkeypatch, format, broken):
    choose = load._choose_conditions
    monkeypatch.setattr(load, "_choose_conditions", lambda *given: choose(*given) | {broken: 1.0})
    monkeypatch.setattr(fuzz_readers, "FORMATS", {format: fuzz_readers.FORMATS[format]})
    _, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert findings and {one.format for one in findings} == {format}
