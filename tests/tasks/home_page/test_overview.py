"""The page over all data sets of a home: a line each, whatever is wrong with one of them."""

import json
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest

from oneclass.tasks import home_page
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import make_current

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
SHOWN = {
    "metric": "ndcg@100",
    "value": 0.4321,
    "standard_error": 0.0123,
    "look": 2,
    "protocol": "next_events",
    "trend": [["2026-11-20", 0.42, 0.01], ["2026-11-21", 0.43, 0.01], ["2026-11-22", 0.4321, 0.0123]],
}


def data_set(root, name, state="completed", hours=5):
    """A data set that published something, whose last run ended some hours ago."""
    home = Home(root, name, Limits(threads=1, memory=1 << 30))
    (home.report).mkdir(parents=True)
    (home.report / "index.html").write_text("<p>the report")
    made_of = {"model": "wmf", "score": "score", "settings": {}, "edges": 9, "users": 3}
    make_current(home, publications.create_publication(home, "run"), recommended=made_of)
    at = f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
    home_page.store_run_facts(home, shown=SHOWN, ended={"run_id": "run", "state": state, "at": at})
    return home


def table_rows(root):
    text = (root / "index.html").read_text()
    return re.findall(r'<tr role="row">\s*<td role="cell" class="text name">(.*?)</tr>', text, flags=re.DOTALL)


def test_a_line_has_state_dates_champion_and_trend(tmp_path):
    data_set(tmp_path, "shop")
    line = home_page.load_dataset_row(tmp_path, "shop")
    home_page.write_home_page(Home(tmp_path, "shop", Limits(threads=1, memory=1 << 30)))
    assert (line.state, line.champion, line.reason) == ("completed", "wmf", "")
    assert line.ended_at.replace("\N{NO-BREAK SPACE}", " ") == "21 November 2026, 22:00 UTC"
    assert (
        line.quality.replace("\N{NO-BREAK SPACE}", " ") == "0.432 ± 0.012"
        and line.warnings == 2
        and line.report == "shop/report/index.html"
    )
    assert line.metric == "ndcg@100, next_events"
    assert f"{datetime.now(UTC):%Y}" in line.published_at and " ago" not in table_rows(tmp_path)[0]
    assert 'href="shop/report/index.html#look">2' in table_rows(tmp_path)[0]
    assert line.trend.count(",") >= 3 and "ndcg@100 of 3 nights" in line.trend


def test_a_quality_of_another_list_names_its_list(tmp_path):
    home = data_set(tmp_path, "shop")
    home_page.store_run_facts(home, shown=SHOWN | {"list": "wmf"})
    assert home_page.load_dataset_row(tmp_path, "shop").metric == "ndcg@100, next_events"
    home_page.store_run_facts(home, shown=SHOWN | {"list": "random_graph (like)"})
    assert home_page.load_dataset_row(tmp_path, "shop").metric == "ndcg@100, next_events, of random_graph (like)"


def test_one_bad_data_set_does_not_break_the_others(tmp_path):
    home = data_set(tmp_path, "b-good")
    (data_set(tmp_path, "a-bad").report / home_page.SUMMARY_FILE).write_text('{"shown": {"value": "no number"}}')
    (tmp_path / "c-new" / "report").mkdir(parents=True)
    (tmp_path / "c-new" / "warehouse.duckdb").write_text("no database, and it is not opened")
    (tmp_path / "datasets").mkdir()
    (data_set(tmp_path, "d-list").report / home_page.SUMMARY_FILE).write_text("[]")
    home_page.record_outcome(home, "run", "completed")
    found = table_rows(tmp_path)
    assert [re.sub("<.*?>", "", one.splitlines()[0]) for one in found] == ["a-bad", "b-good", "c-new", "d-list"]
    assert ["cannot be read" in one for one in found] == [True, False, False, True]
    assert "never ended" in found[2] and "nothing is recommended" in found[2]
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]  # nothing half made is left


@pytest.mark.parametrize("state", ["completed", "partly failed", "failed"])
def test_the_end_of_a_run_is_noted_and_keeps_what_was_shown(tmp_path, state):
    home = data_set(tmp_path, "shop", "running")
    home_page.record_outcome(home, "next", state, "wmf: <no> memory\nTry fewer factors." if state == "failed" else "")
    facts = json.loads((home.report / home_page.SUMMARY_FILE).read_text())
    assert facts["ended"]["run_id"] == "next" and facts["ended"]["state"] == state and facts["shown"] == SHOWN
    assert f'class="state {state.replace(" ", "-")}">{state}' in table_rows(tmp_path)[0]
    assert ("wmf: &lt;no&gt; memory<" in table_rows(tmp_path)[0]) == (state == "failed") and "Try" not in table_rows(
        tmp_path
    )[0]


def test_threads_that_end_the_same_run_leave_a_whole_page(tmp_path, caplog):
    home = data_set(tmp_path, "shop", "running")
    page, torn = tmp_path / "index.html", []

    def end_it():
        for _ in range(40):
            home_page.record_outcome(home, "run", "cancelled")
            torn.extend([text for text in [page.read_text()] if "</html>" not in text])

    threads = [threading.Thread(target=end_it) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not torn and not caplog.text
    assert json.loads((home.report / home_page.SUMMARY_FILE).read_text())["ended"]["state"] == "cancelled"


def test_names_are_escaped_and_links_lead_there(tmp_path):
    data_set(tmp_path, "a <b> & 100%")
    home_page.write_home_page(Home(tmp_path, "a <b> & 100%"))
    assert "<b>" not in (tmp_path / "index.html").read_text()
    assert 'href="a%20%3Cb%3E%20%26%20100%25/report/index.html"' in table_rows(tmp_path)[0]


def test_a_run_that_never_began_leaves_no_folder_and_nothing_fails_a_run(tmp_path, caplog):
    home_page.record_outcome(Home(tmp_path, "absent"), "run", "failed")
    home_page.record_outcome(Home(tmp_path / "nowhere", "absent"), "run", "failed")
    assert list(tmp_path.iterdir()) == [] and not caplog.text
    home = data_set(tmp_path, "shop")
    (tmp_path / "index.html").mkdir()
    home_page.record_outcome(home, "run", "completed")
    assert "cannot be written" in caplog.text
