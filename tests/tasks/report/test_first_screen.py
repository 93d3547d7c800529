"""The report's first screen: the verdict, the alarms, the sample users, and the main table with what it marks."""

import html
import json
import re

import duckdb
import numpy as np
import polars as pl
import pytest

from oneclass import sql
from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks import home_page, leaderboard
from oneclass.tasks.report import report
from oneclass.tasks.report.headline import build_headline, collect_warnings
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.publications import Decision
from tests.conftest import query_rows
from tests.report_rows import BEGAN, MAIN, RUN, fill_home


def test_the_verdict_says_what_is_published_by_how_much_it_leads_and_why(reported, page):
    verdict = page.split('<section class="verdict"')[1].split("</section>")[0]
    said = html.unescape(verdict).replace("\N{NO-BREAK SPACE}", " ")
    quality = (
        "select value, standard_error from evaluation.metrics where (run_id, protocol, metric, model, score) = "
        f"('{RUN}', 'strong_generalization', 'ndcg@100', ?, ?)"
    )
    [(best, error)] = query_rows(reported, quality, "random_graph", "popularity_x_odds")
    [(popularity, _)] = query_rows(reported, quality, "popularity", "score")
    assert f"Published</span> +{100 * (best / popularity - 1):.0f} % over popularity" in said
    assert "<b>random_graph (popularity_x_odds)</b>, by ndcg@100 on test users of <code>strong_generalization" in said
    assert f"<b>{best:.3f}</b> <span>± {error:.3f}</span>" in said
    # Of the others the one that is not level with the best; both, and by how much, stand in evaluation.comparisons.
    assert "It is surely better than mrf_dense, by 0.1000 ± 0.0200 (p < 0.001)." in said
    assert "It takes the place of popularity. Ndcg@100 +0.1000 ± 0.0200 against popularity/score" in said
    assert "Its recommendations were made on 20 November 2026, 03:01 UTC." in said and "<b>1 of 2</b>" in said
    assert "<b>12,345</b> <span>new events</span>" in said and "1,180 a night are usual" in said
    assert said.count("<svg") == 2 and "events of 2 nights, from 900 to 12,345, the last 12,345" in said


def test_the_line_of_quality_is_of_what_stood_with_a_gap_where_a_night_did_not_evaluate_it():
    with duckdb.connect() as connection:
        connection.execute("""
            create schema operations; create schema evaluation;
            create table operations.runs (run_id varchar, settings json, started_at timestamp);
            insert into operations.runs select run_id, '{}', timestamp '2026-01-01 03:00' + to_days(place)
                from (values ('one', 0), ('two', 1), ('three', 2), ('four', 3)) as runs(run_id, place);
            create table operations.evaluated_runs as from operations.runs where run_id <> 'four'; -- which is running
            create table operations.promotions (run_id varchar, promoted boolean, challenger varchar, champion varchar);
            insert into operations.promotions values ('two', true, 'wmf/score', null), ('three', false, 'b/score',
                'wmf/score'), ('four', false, 'b/score', 'wmf/score');
            create table evaluation.metrics (run_id varchar, protocol varchar, metric varchar, model varchar,
                score varchar, value double, standard_error double);
            insert into evaluation.metrics select run_id, 'p', 'm', model, 'score', value, value / 10 from (values
                ('one', 'b', 1.0), ('one', 'a', 2.0), ('two', 'wmf', 3.0), ('two', 'b', 4.0), ('three', 'b', 5.0),
                ('four', 'b', 6.0), ('four', 'wmf', 7.0)) as found(run_id, model, value)
        """)
        found = connection.execute(sql.statement("report/quality"), {"run_id": "four", "protocol": "p", "metric": "m"})
        _, lists, values, errors = zip(*found.fetchall(), strict=True)
    assert lists == ("a/score", "wmf/score", "wmf/score", "wmf/score")
    assert values == (2.0, 3.0, None, 7.0) and errors == (0.2, pytest.approx(0.3), None, pytest.approx(0.7))


LEADERBOARD = [
    leaderboard.LeaderboardRow(
        "strong_generalization", model, "score", 40, {"ndcg@100": (value, 0.01)}, standing,
        against_best=None if standing == "best" else Comparison(value - 0.5, 0.02, p, 40),
    )
    for model, value, standing, p in (("a", 0.5, "best", 1), ("b", 0.49, "level", 0.62), ("popularity", 0.4, "", 1e-9))
]  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "gain", "lead"),
    [
        ("a", "+25 % over popularity", "better than popularity, by 0.1000 ± 0.0200 (p < 0.001)"),
        ("b", "+22 % over popularity", "Level with a, the best of 3 lists, 0.0100 ± 0.0200 (p = 0.62) behind it"),
        ("popularity", "", "Significantly worse than a"),
    ],
)
def test_the_headline_is_of_the_list_that_stands_also_where_it_is_not_the_best(listed, gain, lead):
    decision = Decision(RUN, BEGAN, f"{listed}/score", "a/score", None, None, None, 1.0, False, "fewer users")
    standing = {"list": f"{listed}/score", "made_at": BEGAN, "since": BEGAN, "publications": 1}
    found = build_headline(LEADERBOARD, standing, decision, BEGAN)
    assert (found.label, found.name) == ("Published", listed) and "Fewer users." in found.why
    said_gain, said_lead = (text.replace("\N{NO-BREAK SPACE}", " ") for text in (found.gain, found.lead))
    assert said_gain == gain and lead in said_lead
    undecided = build_headline(LEADERBOARD[:2], None, None, BEGAN)
    assert (undecided.label, undecided.name, undecided.gain) == ("Best", "a", "")  # popularity was not evaluated


def test_the_protocol_that_decided_alarms_titles_and_marks_are_shown(tmp_path):
    """What came next chooses the model that users never seen see second; its figures are the page's."""
    home = fill_home(
        tmp_path,
        """insert into evaluation.metrics
            select run_id, 'next_events', model, score, metric, if(model = 'mrf_dense', 0.9, value / 2), * exclude
                (run_id, protocol, model, score, metric, value)
            from evaluation.metrics where protocol = 'strong_generalization'""",
        f"update operations.promotions set challenger = 'mrf_dense/score' where run_id = '{RUN}'",
        "update published.recommendations set is_new = item_id = 'i9'",
    )
    runs.record_alarm(home, RUN, "the catalogue lacks 12 items, which have 31 % of the likes.")
    titles = {"item_id": [f"i{at}" for at in range(30)], "title": [f"<b>Film {at}</b> & more" for at in range(30)]}
    (model := home.publications / "one" / "model").mkdir(parents=True)
    pl.DataFrame(titles).write_parquet(model / "items.parquet")
    (model / "rules.json").write_text('{"rules": {"pinned": ["i8"]}}')
    home.published.symlink_to("publications/one")
    quality = "select value from evaluation.metrics where (run_id, protocol, model, metric) = (?, ?, ?, 'ndcg@100')"
    [(popularity,)] = query_rows(home, quality, RUN, "next_events", "popularity")
    report(home, RUN)
    home_page.write_home_page(home)
    page = (home.report / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    verdict = page.split('<section class="verdict"')[1].split("</section>")[0]
    assert f"+{100 * (0.9 / popularity - 1):.0f} % over popularity" in verdict
    assert "of <code>next_events</code>" in verdict and "<b>0.900</b> <span>± 0.012</span>" in verdict
    shown = page.split('<h2 id="models">')[1].split('<h2 id="changes">')[0]
    tables = [re.findall(r'<table id="main-(\w+)"', part) for part in shown.split('<details class="of-protocol"')]
    assert tables[0] == ["next_events"] and {name for part in tables[1:] for name in part} == set(MAIN)
    facts = json.loads((home.report / "summary.json").read_text())["shown"]
    assert (facts["protocol"], facts["list"], facts["value"]) == ("next_events", "mrf_dense", 0.9)
    assert facts["trend"][-1][1] == 0.9 and "0.900 ±" in (tmp_path / "index.html").read_text()
    alarm = '<a href="#soundness">the catalogue lacks 12 items, which have 31 % of the likes</a>'
    assert f'<li class="grave">{alarm}' in page.split('id="look"')[1].split("</ul>")[0]
    # Titles stand for ids.
    assert "<b>Film" not in page and "<li><span>item" not in page
    listed = re.findall(r"<li><span>&lt;b&gt;Film (\d+)&lt;/b&gt; &amp; more(?: <b>(\w+)</b>)?</span>", page)
    assert len(listed) >= 25 and {pair for pair in listed if pair[1]} == {("8", "pinned"), ("9", "new")}
    index = re.search(r'id="index">(.*?)</script>', (home.report / "search.html").read_text())[1]
    found = {item: mark for item, *_, mark in json.loads(index)["items"] if mark}
    assert found == {"i8": "pinned", "i9": "new"}


@pytest.mark.parametrize(("events", "rejects", "told"), [(200_000, 4, False), (0, 0, False), (100_000, 900, True)])
def test_rejected_lines_are_told_of_in_proportion(events, rejects, told):
    alarms = collect_warnings({"events": events, "rejects": rejects})
    assert [one.text for one in alarms] == ["900 lines, 0.9\N{NO-BREAK SPACE}% of all, could not be read"] * told


@pytest.mark.slow
def test_warnings_and_what_is_missing_are_told_and_the_reports_of_thirty_runs_are_kept(tmp_path, page):
    told = page.split('id="look"')[1].split("</ul>")[0]
    assert "Not read: orders.csv: is &lt;empty&gt;" in told and "could not be read" not in told
    home = fill_home(
        tmp_path,
        "update operations.contract_results set success = true",
        "delete from operations.arrivals",
        "delete from evaluation.ranks_by_degree where degree_low <> 1",
        "update evaluation.metrics set standard_error = null",
        "update diagnostics.power_law_fits set exponent = null, cutoff = null, p_value = null",
        "update diagnostics.degrees set degree = 7",
        "delete from operations.model_fits",
    )
    runs = home.report / "runs"
    runs.mkdir(parents=True)
    names = [f"2026-10-{day:02}T030000" for day in range(1, 32)]
    for name in names:
        (runs / f"{name}.html").write_text(name)
    report(home, RUN)
    page = (home.report / "index.html").read_text()
    assert 'id="look"' not in page and "<b>all 2</b>" in page
    assert "nearly the same degree" in page and "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert re.findall(r'href="runs/(.*?)\.html"', page) == names[::-1]
    own = f"{BEGAN:%Y-%m-%dT%H%M%S}"
    assert sorted(file.stem for file in runs.iterdir()) == [*names[2:], own]
    page = page.replace('href="runs/', 'href="').replace('href="search.html', 'href="../search.html')
    assert (runs / f"{own}.html").read_text() == page


def test_sample_users_are_five_spread_over_the_lengths_of_history(reported, page):
    found = re.findall(r'<article aria-labelledby="sample-\d">(.*?)</article>', page, flags=re.DOTALL)
    likes = dict(query_rows(reported, "select user_id, count(*) from curated.interactions group by user_id"))
    ordered = sorted(likes, key=lambda user: (likes[user], user))
    chosen = [ordered[int(share * (len(ordered) - 1))] for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    users = [re.search(r"</span> (\w+)</h3>", one)[1] for one in found]
    assert users == chosen
    for user, one in zip(users, found, strict=True):
        lists = [re.findall(r"<li><span>(.*?)</span>", part) for part in one.split("recommended, the best first")]
        item = "select 'item ' || item_id from"
        liked = query_rows(reported, f"{item} curated.interactions where user_id = ?", user)
        listed = query_rows(reported, f"{item} published.recommendations where user_id = ? order by rank limit 5", user)
        assert len(lists[0]) == min(5, likes[user]) and {(one,) for one in lists[0]} <= {*liked}
        assert [(one,) for one in lists[1]] == listed


def test_every_list_has_a_dot_on_one_scale(page):
    for protocol in MAIN:
        table = page.split(f'<table id="main-{protocol}"')[1].split("</table>")[0]
        dots = re.findall(r'class="dots" data-value="([\d.]+)".*?<circle cx="([\d.]+)%"', table)
        values, at = np.array(dots, dtype=float).T
        assert len(dots) == 4 and table.count('class="level"') == table.count('class="best"') == 1
        assert np.ptp(np.diff(at) / np.diff(values)) < 1 and 0 < min(at) and max(at) < 100  # one scale
