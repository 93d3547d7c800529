"""The report on a made-up warehouse: every cell of its tables and every point of its figures against plain SQL."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.report import figures as report_figures
from oneclass.tasks.report import report
from oneclass.tasks.report.figures import draw_figures
from oneclass.tasks.report.headline import load_leaderboards
from oneclass.tasks.report.page import render_figures
from oneclass.tasks.report.tables import RunTables, load_figure_rows
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import execute_statement, query_rows
from tests.report_rows import BEFORE, MAIN, RUN

CHANGED = f"""
    select protocol, metric, model, score, b.value, n.value, n.value - b.value,
        case when b.value is null then 'new' when n.value is null then 'gone' when n.value = b.value then 'the same'
            when abs(n.value - b.value) <= 2 * sqrt(n.standard_error ** 2 + b.standard_error ** 2)
                then 'within the noise'
            when n.value > b.value then 'better' else 'worse'
        end
    from (from evaluation.metrics where run_id = '{RUN}') n
    full join (from evaluation.metrics where run_id = '{BEFORE}') b using (protocol, model, score, metric)
    where (protocol, metric) in (('strong_generalization', 'ndcg@100'), ('leave_one_out', 'mean_rank'))"""
ORDER = ("ndcg@100", "recall@20", "recall@50", "mean_rank", "median_rank", "validation_ndcg@100")
EXPECTED = {
    "funnel": "select reason, if(step = 0, null, lost), remaining, users, items from operations.funnel "
    f"where run_id = '{RUN}'",
    "log_files": "select parse_filename(path), events, rejects, bytes, sha256[:12], ingested_at "
    "from operations.log_files",
    "reject_reasons": "select 'second.csv', reason, count(*), min(line_number) from raw.rejects group by reason",
    "contracts": "select stage, contract, 1, 0, (not success)::int from operations.contract_results "
    f"where run_id = '{RUN}'",
    "costs": "select protocol, model, seconds, peak_bytes, saved_bytes from operations.model_fits where run_id = "
    f"'{RUN}'",
    "considered": """
        values ('leave_one_out', 'random_graph', 0.71, 0.6125, 0.0934, 400, 312),
            ('leave_one_out', 'popularity', 0.71, 0.6125, 0.0934, 400, 312)""",
    "metric_changes": CHANGED,
    "setting_changes": "values ('seed', '7', '0'), ('searched.mrf_dense.l2', '55.1', '74.2')",
    "model_settings": """
        values ('mrf_dense', 'searched in this run', 'ndcg@100', 0.41, 0.432, 0.432 - 0.41, 12, 'l2 74.2'),
            ('random_graph', 'defaults', null, null, null, null, null,
             '31 validation users are too few to choose by')""",
}
for _protocol, _metrics in MAIN.items():
    _chosen = PROTOCOLS[_protocol].main_metrics
    _places = ", ".join(f"any_value(value) filter (metric = '{metric}')" for metric in _chosen)
    EXPECTED[f"main-{_protocol}"] = f"""
        select model, score,
            case (model, score) when ('random_graph', 'popularity_x_odds') then 'best'
                when ('random_graph', 'like') then 'level' else '' end,
            {_places}, if(score = 'popularity_x_odds', null, -0.1),
            case score when 'popularity_x_odds' then null when 'like' then 1.0 else 6 * 0.0001 end
        from evaluation.metrics
        where run_id = '{RUN}' and protocol = '{_protocol}' group by model, score"""
    _known = ("coverage@20", "novelty@20")
    _ordered = sorted(_metrics, key=ORDER.index)
    for _name, _table, _shown in (("metrics", "metrics", _ordered), ("beyond", "beyond_accuracy", _known)):
        EXPECTED[f"{_name}-{_protocol}"] = f"""
            select model, score, {", ".join(f"any_value(value) filter (metric = '{m}')" for m in _shown)}
            from evaluation.{_table} where run_id = '{RUN}' and protocol = '{_protocol}' group by model, score"""
    _shown = [("random_graph", "popularity_x_odds"), ("popularity", "score")]
    _lists = ", ".join(f"any_value(value) filter (model = '{model}' and score = '{score}')" for model, score in _shown)
    EXPECTED[f"strata-{_protocol}"] = f"""
        select
            if(strata = 'activity', 'users by their history', 'items by their likes'), stratum,
            least::int || ' to ' || most::int, any_value(users), any_value(targets), {_lists}
        from evaluation.strata
        where protocol = '{_protocol}' and metric = '{_metrics[0]}' group by strata, stratum, least, most"""
EXPECTED["list_hits"] = """
    select made_at, users, likes, hits, recall, ndcg, ndcg - popularity_ndcg from diagnostics.list_hits"""


class Tables(HTMLParser):
    """Rows of every table of a page: (value, text) of each cell; and all ids and links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows, self.ids, self.links = {}, [], []
        self._table = self._cell = None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        if tag == "table":
            self._table = self.rows[attributes["id"]] = []
        elif tag == "tbody":
            self._table.clear()  # of the header
        elif tag == "tr":
            self._table.append([])
        elif tag == "td":
            self._cell = [attributes.get("data-value"), ""]
            self._table[-1].append(self._cell)

    def handle_endtag(self, tag):
        self._cell = None if tag == "td" else self._cell

    def handle_data(self, data):
        if self._cell:
            self._cell[1] += data


@pytest.fixture(scope="module")
def tables(page):
    return Tables(page)


@pytest.fixture(scope="module")
def figures(reported):
    with warehouse.open_warehouse(reported, read_only=True) as connection:
        tables = RunTables(connection, RUN)
        return {figure.name: figure for figure in draw_figures(load_figure_rows(tables, load_leaderboards(tables)))}


def format_plain(value) -> str:
    """A value of the warehouse as `data-value` or a text has it."""
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)


def in_twelve_digits(row: list[str]) -> list[str]:
    return [f"{float(value):.12g}" if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value) else value for value in row]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_cell_is_what_the_warehouse_says(reported, tables, name):
    shown = [[text if value is None else value for value, text in row] for row in tables.rows[name]]
    found = [[format_plain(value) for value in row] for row in query_rows(reported, EXPECTED[name])]
    assert sorted(map(in_twelve_digits, shown)) == sorted(map(in_twelve_digits, found))


def test_no_table_goes_unchecked(tables):
    assert set(tables.rows) == set(EXPECTED)


def test_the_best_come_first_and_names_are_escaped(page, tables):
    for protocol in MAIN:
        values = [float(row[3][0]) for row in tables.rows[f"main-{protocol}"]]
        assert values == sorted(values, reverse=True)
        assert [row[1][1] for row in tables.rows[f"strata-{protocol}"]] == ["low", "high", "high"]
    assert "<first>" not in page and "&lt;first&gt;.csv" in page


def test_ids_are_unique_and_links_lead_to_the_page_or_a_file_beside_it(reported, page, tables):
    assert len(tables.ids) == len(set(tables.ids))
    inside, beside = ([link for link in tables.links if link.startswith("#") == here] for here in (True, False))
    assert {link[1:] for link in inside} <= set(tables.ids)
    assert {"search.html"} <= set(beside) and all((reported.report / link).exists() for link in beside)
    refers = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', page))
    assert refers and refers <= set(tables.ids)
    without_names = re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", page)
    assert "http" not in without_names and "src=" not in page and "@import" not in page  # nothing is fetched


def test_figures_are_drawn_again_if_their_rows_changed(reported, page, monkeypatch):
    with warehouse.open_warehouse(reported, read_only=True) as connection:
        tables = RunTables(connection, RUN)
        rows = load_figure_rows(tables, load_leaderboards(tables))
    drawn = []
    monkeypatch.setattr(report_figures, "draw_figures", lambda rows: drawn.append(rows) or [])
    assert render_figures(rows, reported) in page and not drawn
    changed = replace(rows, lacking=[*rows.lacking, "like_mean"])
    assert render_figures(changed, reported) == "" and drawn == [changed]


def test_each_drawing_is_in_the_page_and_follows_the_theme(page, figures):
    assert set(figures) == {"ranks_by_degree", "calibration", "degrees"}
    for text in (text for figure in figures.values() for text in figure.drawings):
        assert text in page and "<image" not in text
        assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", text)  # only as a fallback


def line_points(panel):
    """Points of each labelled line."""
    return {line.get_label(): np.asarray(line.get_xydata()) for line in panel.axes.lines if line.get_label()[0] != "_"}


def test_degrees_are_drawn_as_they_are_and_laws_as_they_say(reported, figures):
    for panel in figures["degrees"].panels:
        side = panel.name.partition("-")[2]
        counts = dict(query_rows(reported, f"select degree, vertices from diagnostics.degrees where side = '{side}'"))
        found = line_points(panel)
        (points,) = (xy for label, xy in found.items() if label.startswith(f"{side}s"))
        assert {tuple(point) for point in points} <= set(counts.items()) and len(points) > 3
        laws = query_rows(reported, f"from diagnostics.power_law_fits where side = '{side}'")
        assert len(found) == 1 + len(laws)
        for _, family, a, c, low, high, *_, p in laws:
            d = np.arange(low, high + 1.0)
            mass = {
                "power_law": lambda d=d, a=a: d**-a,
                "power_law_cutoff": lambda d=d, a=a, c=c: d**-a * np.exp(-d / c),
                "log_normal": lambda d=d, a=a, c=c: np.exp(-((np.log(d) - a) ** 2) / (2 * c**2)) / d,
                "exponential": lambda d=d, c=c: np.exp(-d / c),
            }[family]()
            expected = mass / mass.sum() * sum(counts.values())
            name = report_figures.FAMILIES[family]
            ((label, drawn_law),) = (line for line in found.items() if line[0].startswith(f"{name}: "))
            np.testing.assert_allclose(drawn_law[:, 1], expected[drawn_law[:, 0].astype(int) - low], rtol=1e-9)
            assert label.endswith("p <\N{NO-BREAK SPACE}0.01" if p <= 0.01 else f"p = {p:.2g}")  # of 99 samples


def test_ranks_are_drawn_as_they_are(reported, figures):
    best = "(model, score) in (('popularity', 'score'), ('mrf_dense', 'score'), ('random_graph', 'popularity_x_odds'))"
    for panel in figures["ranks_by_degree"].panels:
        side, found = panel.name.partition("-")[2], line_points(panel)
        of_side = f"from evaluation.ranks_by_degree where side = '{side}' and {best} order by degree_low"
        rows = query_rows(reported, of_side)
        assert set(found) == {"popularity", "mrf_dense", "random_graph"}
        for model, xy in found.items():
            of_model = [row for row in rows if row[1] == model]
            np.testing.assert_allclose(xy[:, 0], [np.sqrt(row[4] * row[5]) for row in of_model])
            np.testing.assert_array_equal(xy[:, 1], [row[7] for row in of_model])


def test_calibration_is_drawn_as_it_is(reported, figures):
    (panel,) = figures["calibration"].panels
    bars = {bar.get_label(): bar[0].get_xydata() for bar in panel.axes.containers}
    for reference in ("considered", "sampled_negatives"):
        shares = f"select mean_like, observed from evaluation.calibration where reference = '{reference}'"
        np.testing.assert_array_equal(bars[reference.replace("_", " ")], query_rows(reported, shares))


def test_an_empty_warehouse_says_why_nothing_is_there(tmp_path):
    home = Home(tmp_path, "empty", Limits(threads=1, memory=1 << 30))
    execute_statement(home, "insert into operations.runs values ('r', 'f', 'empty', now(), null, 'running', '{}', '1')")
    report(home, "r")
    page = (home.report / "index.html").read_text()
    assert "No run of the data set was completed before this one" in page and not Tables(page).rows
    for why in ("ranks by degree need leave_one_out", "nothing was evaluated", "No contract was checked"):
        assert why in page
