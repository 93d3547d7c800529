"""Progress: log lines with the time that is left."""

import logging
import re

import pytest

from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.progress import format_duration, iterate_with_progress, report_progress


def test_a_line_a_step_and_the_time_that_is_left(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    with report_progress("hpf (given)") as tell:
        tell(1, 3, "epoch 1 of 3")
        tell(2, 3, "epoch 2 of 3")
        tell(3, 3)
    assert list(iterate_with_progress([1, 3, 4], "reading", lambda piece: piece)) == [1, 3, 4]
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "hpf (given): epoch 1 of 3" and lines[2] == "hpf (given): 100 %"
    assert re.fullmatch(r"hpf \(given\): epoch 2 of 3, about [\d.]+ s left", lines[1])
    assert [re.match(r"reading: (\d+) %", line)[1] for line in lines[3:]] == ["12", "50", "100"]


def test_quick_steps_share_a_line_and_one_piece_is_no_news(caplog):
    caplog.set_level(logging.INFO)
    assert list(iterate_with_progress(range(1000), "bpr")) == [*range(1000)]
    assert "bpr: 100 %" in caplog.text and len(caplog.records) < 10
    caplog.clear()
    assert list(iterate_with_progress([1], "reading")) == [1] and not caplog.records


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_times_are_for_people(seconds, words):
    assert format_duration(seconds) == words
