"""Progress: log lines with the time that is left."""

import logging
import re

import pytest

from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.progress import format_duration, iterate_with_progress, report_progress


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO)
    return caplog


def test_a_line_a_step_and_the_time_that_is_left(logged, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    with report_progress("hpf (given)") as tell:
        tell(1, 3, "epoch 1 of 3")
        tell(2, 3, "epoch 2 of 3")
        tell(3, 3)
    told_lines = [record.getMessage() for record in logged.records]
    assert told_lines[0] == "hpf (given): epoch 1 of 3"
    assert re.fullmatch(r"hpf \(given\): epoch 2 of 3, about [\d.]+ s left", told_lines[1])
    assert told_lines[2] == "hpf (given): 100 %"


def test_quick_steps_share_a_line_and_the_last_has_its_own(logged):
    with report_progress("bpr") as tell:
        for step in range(1, 1001):
            tell(step, 1000)
    assert [record.getMessage() for record in logged.records if "100 %" in record.getMessage()]
    assert len(logged.records) < 10


def test_pieces_come_in_order_with_their_weights(logged, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    assert list(iterate_with_progress([1, 3, 4], "reading", lambda piece: piece)) == [1, 3, 4]
    assert [re.match(r"reading: (\d+) %", record.getMessage())[1] for record in logged.records] == ["12", "50", "100"]


def test_one_piece_is_no_news(logged):
    assert list(iterate_with_progress([1], "reading")) == [1] and not logged.records


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_times_are_for_people(seconds, words):
    assert format_duration(seconds) == words
