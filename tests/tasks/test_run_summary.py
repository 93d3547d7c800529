"""How a run's end is told: a notification of five lines at most, the gravest problem first."""

from oneclass.tasks.run_summary import MAX_LINES, RunDescription, describe_failure


def test_a_notification_has_five_lines_whatever_happened():
    facts = ["2 new files with 9 events.", "Report: https://reports.example/"]
    for count in range(9):
        problems = [f"Alarm: {number}{'x' * 999}\nmore" for number in range(count)]
        ended = RunDescription("alarm", "shop: Published: slim", problems, facts)
        lines = ended.text.splitlines()
        assert len(lines) == 3 + min(count, 2) <= MAX_LINES and max(map(len, lines)) < 500
        assert lines[0] == "shop: Published: slim" and lines[-1].startswith("Report")
        assert ("And 3 more." in ended.text) == (count == 5)
        assert all(problem in ended.markdown for problem in problems)


def test_a_failure_says_what_is_published_and_how_to_go_on(home):
    ended = describe_failure(home, "nightly-retrain", ValueError("no such luck\n\nline 2\nline 3\nline 4"))
    first, *rest, last = ended.text.splitlines()
    assert first == "small: nightly-retrain failed; nothing is published" and len(rest) == 3
    assert rest[0] == "ValueError: no such luck" and last.startswith("The same run, started again, continues")
