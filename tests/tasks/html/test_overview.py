"""Numbers and sparklines of the pages, and the page over all data sets of a home."""

import json
import re
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oneclass.tasks import home_page
from oneclass.tasks.html import numbers
from oneclass.tasks.html.templates import HEIGHT, MARGIN, WIDTH, draw_sparkline
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import make_current


@given(st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-9), st.integers(1, 6))
def test_numbers_are_as_people_write_them_and_keep_their_digits(value, digits):
    for text in (numbers.format_significant(value, digits), numbers.format_fixed(value, digits)):
        assert re.fullmatch(r"\N{MINUS SIGN}?\d{1,3}(,\d{3})*(\.\d+)?", text)
    shown = float(numbers.format_significant(value, digits).replace(",", "").replace("\N{MINUS SIGN}", "-"))
    assert abs(shown - value) <= max(0.5 * 10 ** (np.floor(np.log10(abs(value) or 1)) - digits + 1), 1e-12) * (1 + 1e-6)


def test_signs_and_the_decimals_that_an_error_allows():
    def plain(value, error):
        return " ".join(numbers.format_with_error(value, error)).replace("\N{NO-BREAK SPACE}", " ")

    assert numbers.format_fixed(-0.00001, 4, signed=True) == "0.0000"
    assert numbers.format_fixed(0.5, 2, signed=True) == "+0.50"
    assert plain(0.45123, 0.01504) == "0.451 ± 0.015" and plain(1234.5, 170) == "1,234 ± 170"
    assert plain(0.5, None) == plain(0.5, 0.0) == "0.5000 "


def polyline_points(drawn):
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall('<polyline points="(.*?)"', drawn)
    ]


def test_a_line_goes_from_edge_to_edge_with_gaps_that_keep_their_place():
    """Higher values lie higher; fewer than two values are no line."""
    ((first, middle, last),) = polyline_points(draw_sparkline([1.0, 3.0, 2.0], "three"))
    assert first == (MARGIN, HEIGHT - MARGIN) and middle == (WIDTH / 2, MARGIN) and last == (WIDTH - MARGIN, HEIGHT / 2)
    drawn = draw_sparkline([1.0, 2.0, None, 3.0, None, 2.0, 1.0], "seven", [0.1, 0.1, None, 0.1, None, 0.1, 0.1])
    assert [len(points) for points in polyline_points(drawn)] == [2, 2] and drawn.count('class="band"') == 3
    assert drawn.count("<circle") == 2  # the night between two gaps, and the last value
    assert polyline_points(drawn)[1][0][0] == round(MARGIN + 5 * (WIDTH - 2 * MARGIN) / 6, 1)
    assert not draw_sparkline([], "none") and not draw_sparkline([None, 1.0, None], "one")


NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
SHOWN = {
    "metric": "ndcg@100",
    "value": 0.4321,
    "standard_error": 0.0123,
    "look": 2,
    "protocol": "next_events",
    "trend": [["2026-11-20", 0.42, 0.01], ["2026-11-21", 0.43, 0.01], ["2026-11-22", 0.4321, 0.0123]],
}


def data_set(root, name, state="completed"):
    """A data set that published something, whose last run ended five hours ago."""
    home = Home(root, name, Limits(threads=1, memory=1 << 30))
    (home.report).mkdir(parents=True)
    (home.report / "index.html").write_text("<p>the report")
    made_of = {"model": "wmf", "score": "score", "settings": {}, "edges": 9, "users": 3}
    make_current(home, publications.create_publication(home, "run"), recommended=made_of)
    at = f"{NOW - timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ}"
    home_page.store_run_facts(home, shown=SHOWN, ended={"run_id": "run", "state": state, "at": at})
    return home


def table_rows(root):
    text = (root / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    return re.findall(r'<tr role="row">\s*<td role="cell" class="text name">(.*?)</tr>', text, flags=re.DOTALL)


def test_a_line_has_state_dates_champion_quality_and_trend_and_names_are_escaped(tmp_path):
    home = data_set(tmp_path, "a <b> & 100%")
    home_page.write_home_page(home)
    [row] = table_rows(tmp_path)
    parts = "21 November 2026, 22:00 UTC", "0.432 ± 0.012", "wmf", "ndcg@100, next_events<", "ndcg@100 of 3 nights"
    assert all(part in row for part in parts)
    assert 'href="a%20%3Cb%3E%20%26%20100%25/report/index.html#look">2' in row and "<b>" not in row
    home_page.store_run_facts(home, shown=SHOWN | {"list": "random_graph (like)"})
    home_page.write_home_page(home)
    assert "next_events, of random_graph (like)<" in table_rows(tmp_path)[0]  # which is not what is published


def test_one_bad_data_set_does_not_break_the_others(tmp_path):
    home = data_set(tmp_path, "b-good")
    (data_set(tmp_path, "a-bad").report / home_page.SUMMARY_FILE).write_text('{"shown": {"value": "no number"}}')
    (tmp_path / "c-new" / "report").mkdir(parents=True)
    (tmp_path / "c-new" / "warehouse.duckdb").write_text("no database, and it is not opened")
    (tmp_path / "datasets").mkdir()
    home_page.record_outcome(home, "run", "completed")
    found = table_rows(tmp_path)
    assert [re.sub("<.*?>", "", one.splitlines()[0]) for one in found] == ["a-bad", "b-good", "c-new"]
    assert ["cannot be read" in one for one in found] == [True, False, False] and "never ended" in found[2]


def test_the_end_of_a_run_is_noted_and_keeps_what_was_shown(tmp_path):
    """Also where several threads end the same run, which leaves a whole page at any time."""
    home = data_set(tmp_path, "shop", "running")
    page, torn = tmp_path / "index.html", []

    def end_it():
        for _ in range(40):
            home_page.record_outcome(home, "next", "partly failed", "wmf: <no> memory\nTry fewer factors.")
            torn.extend([text for text in [page.read_text()] if "</html>" not in text])

    threads = [threading.Thread(target=end_it) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not torn and not [one for one in tmp_path.iterdir() if one.name.startswith(".")]
    facts = json.loads((home.report / home_page.SUMMARY_FILE).read_text())
    assert facts["ended"]["run_id"] == "next" and facts["ended"]["state"] == "partly failed" and facts["shown"] == SHOWN
    [row] = table_rows(tmp_path)
    assert 'class="state partly-failed">partly failed' in row
    assert "wmf: &lt;no&gt; memory<" in row and "Try" not in row


def test_a_run_that_never_began_leaves_no_folder_and_nothing_fails_a_run(tmp_path, caplog):
    home_page.record_outcome(Home(tmp_path, "absent"), "run", "failed")
    home_page.record_outcome(Home(tmp_path / "nowhere", "absent"), "run", "failed")
    assert list(tmp_path.iterdir()) == [] and not caplog.text
    home = data_set(tmp_path, "shop")
    (tmp_path / "index.html").mkdir()
    home_page.record_outcome(home, "run", "completed")
    assert "cannot be written" in caplog.text
