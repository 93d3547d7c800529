"""Progress: log lines without a terminal, a bar with whole lines above it on a terminal."""

import logging
import os
import re

import pytest
from prefect.logging.formatters import PrefectFormatter
from prefect.logging.handlers import PrefectConsoleHandler

from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.progress import format_duration, iterate_with_progress, report_progress

LINES = logging.getLogger("oneclass.tasks.elsewhere")


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def terminal(monkeypatch):
    """A pseudo terminal that log lines go to; a function that ends it and gives what was written."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    stream = os.fdopen(theirs, "w")
    handler = PrefectConsoleHandler(stream=stream)
    handler.setFormatter(PrefectFormatter("%(name)s - %(message)s"))
    handler.console.width = 120
    root = logging.getLogger()
    others, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)

    def written() -> str:
        stream.close()
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # the other end is closed and all is read
            pass
        return b"".join(parts).decode()

    yield written
    root.handlers[:] = others
    root.setLevel(level)
    os.close(ours)


def as_lines(text):
    """What a terminal was sent, without its control codes, line by line."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text))


def test_lines_above_a_bar_are_whole_and_what_the_bar_shows_is_not_repeated(terminal):
    with report_progress("random_graph (leave_one_out)") as tell:
        for epoch in range(1, 5):
            LINES.info("a line of another %d", epoch)
            tell(epoch, 4, f"epoch {epoch} of 4")
    LINES.info("afterwards")
    lines = as_lines(terminal())
    for epoch in range(1, 5):
        assert f"oneclass.tasks.elsewhere - a line of another {epoch}" in [line.rstrip() for line in lines]
    assert "oneclass.tasks.elsewhere - afterwards" in [line.rstrip() for line in lines]
    assert any("random_graph" in line and "100%" in line and "epoch 4 of 4" in line for line in lines)
    assert not any("oneclass.tasks.orchestration.progress" in line for line in lines)


def test_who_comes_second_has_no_bar_of_its_own(terminal):
    with report_progress("first"), report_progress("second") as tell:
        tell(1, 2)
    with report_progress("third"):
        pass
    bars = [line for line in as_lines(terminal()) if "left" in line]
    assert any("first" in bar for bar in bars) and any("third" in bar for bar in bars)
    assert not any("second" in bar for bar in bars)


def test_a_line_a_step_where_there_is_no_terminal(logged, monkeypatch):
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
