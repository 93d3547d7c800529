"""Every page in Chromium: accessible in both themes and any width, light, without scripts; and what scripts add."""

import json
import re
import shutil
from datetime import datetime
from importlib.resources import files

import pytest

from oneclass.tasks import home_page
from oneclass.tasks.explain import views
from oneclass.tasks.explain.explanation import Explanation, PublishedList
from oneclass.tasks.stores.home import Home
from tests.browser import CHROMIUM, open_chromium
from tests.conftest import query_rows
from tests.report_rows import RUN

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
PAGES = ("report", "explain", "overview", "search")
WITHOUT_SCRIPTS = PAGES[:3]
HEAVIEST = 1_500_000  # bytes
MAIN = "#main-strong_generalization"
PRINTED = ("backgroundColor", "color")


@pytest.fixture(scope="module")
def pages(reported, tmp_path_factory):
    """The pages of a home with one whole data set and one that is damaged."""
    root = shutil.copytree(reported.root, tmp_path_factory.mktemp("copied") / "home", symlinks=True)
    home = Home(root, "small", reported.limits)
    items = [
        {"item_id": f"i{at}", "score": -1.5 * at, "users": 20 + at, "like_mean": 0.5, "like_sd": 0.1, "mark": None}
        | {"because": [("i9", 0.25), ("i8", -0.1)], "seen": at == 2}
        for at in range(12)
    ]
    history = [{"item_id": f"i{at}", "first_at": datetime(2026, 11, 20), "users": 5} for at in range(30)]
    titles = {f"i{at}": f"A film <of> {at}" for at in range(9)}
    found = Explanation("small", "u1", history, PublishedList("wmf", "like", items), ["i3: rank 4 of 20."], titles)
    explained = views.write_user_page(home, found)
    broken = home.root / "broken" / "report"
    broken.mkdir(parents=True)
    (broken / home_page.SUMMARY_FILE).write_text("{")
    home_page.record_outcome(home, RUN, "completed")
    return {
        "report": home.report / "index.html",
        "search": home.report / "search.html",
        "explain": explained,
        "overview": home.root / "index.html",
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with open_chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"


@pytest.fixture
def axe(page):
    """The source of axe-core, and a page that lets it run for all that its policy forbids."""
    page.call("Page.setBypassCSP", enabled=True)
    yield (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page.call("Page.setBypassCSP", enabled=False)


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_violation(page, pages, axe, name, dark, width):
    page.open(pages[name], width=width, dark=dark)
    page.js(OPEN)
    page.js(f"{axe}; null")
    found = page.js("axe.run(document).then(found => JSON.stringify([found.passes.length, found.violations]))")
    passes, violations = json.loads(found)
    messages = [f"{one['id']}: {one['help']}: {node['html'][:200]}" for one in violations for node in one["nodes"][:3]]
    assert messages == [] and passes > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_SCRIPTS)
def test_no_page_needs_a_script_or_a_network_fails_or_is_heavy(page, pages, name):
    page.open(pages[name])
    methods = {event["method"] for event in page.events}
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert not methods & {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
    without_buttons = "document.querySelectorAll('.get').forEach(one => one.remove())"
    words = f"{without_buttons}; document.body.innerText.split(/\\s+/)"
    seen = page.js(words)
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(pages[name])
        assert page.js("document.querySelectorAll('button').length") == 0
        assert page.js(words) == seen and len(seen) > 50
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    text = pages[name].read_text(encoding="utf-8")
    assert "default-src 'none'" in text and len(text.encode()) < HEAVIEST


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_sideways_and_no_table_is_cut_on_paper(page, pages, name):
    for width in (360, 768, 1400):
        page.open(pages[name], width=width)
        page.js(OPEN)
        assert page.js("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
    assert page.js("[...document.querySelectorAll('.wide')].every(one => one.tabIndex === 0)")  # so keys scroll it
    page.open(pages[name], width=695, dark=True, media="print")  # A4 less the margins, in CSS pixels
    style = "getComputedStyle(document.body).{}"
    paper, ink = ([int(value) for value in re.findall(r"\d+", page.js(style.format(of)))] for of in PRINTED)
    assert min(paper[:3]) > 240 and max(ink[:3]) < 128
    page.js(OPEN)
    ends = page.js("[...document.querySelectorAll('table')].map(one => one.getBoundingClientRect().right)")
    assert max(ends, default=0) <= 696


@pytest.mark.parametrize("table", [MAIN, "#datasets", "#metric_changes"])
def test_each_value_has_its_name_on_a_narrow_screen(page, pages, table):
    page.open(pages["overview" if table == "#datasets" else "report"], width=360)
    cells = f"[...document.querySelectorAll('{table} tbody td:not(.text)')].filter(td => td.offsetWidth)"
    assert page.js(f"{cells}.every(td => td.getBoundingClientRect().right <= innerWidth)")
    names = page.js(f"{cells}.map(td => getComputedStyle(td, '::before').content)")
    assert names and "none" not in names


def test_a_user_and_an_item_are_found_by_a_link(page, pages, reported):
    lists = "select user_id, list(item_id order by rank) from published.recommendations group by 1 order by 1"
    user, items = query_rows(reported, lists)[0]
    likes = dict(query_rows(reported, "select item_id, count(*) from curated.interactions group by item_id"))
    page.open(pages["search"])
    page.js(f"location.hash = '{user}'; null")
    page.js("new Promise(done => setTimeout(done, 50))")
    assert page.js("document.querySelector('#found article h3').innerText") == f"User {user}"
    listed = page.js("[...document.querySelectorAll('#found article:first-of-type ol li')].map(one => one.innerText)")
    assert [text.split()[-1] for text in listed] == items[:10]
    page.js(f"query.value = '{items[0]}'; search(); null")
    found = page.js("[...document.querySelectorAll('#found article')].map(one => one.innerText)")
    assert any(f"{likes.get(items[0], 0):,} like" in text and items[0] in text for text in found)


def read_column(page, table, place):
    return page.js(f"[...document.querySelector('{table}').tBodies[0].rows].map(r => r.cells[{place}].textContent)")


def read_sorting(page, table):
    """Which columns say that they sort the table, and how."""
    return page.js(
        f"[...document.querySelectorAll('{table} th')].flatMap((h, i) => h.ariaSort ? [[i, h.ariaSort]] : [])"
    )


def test_tables_sort_by_click_as_numbers_with_what_is_not_there_last(page, pages):
    page.open(pages["report"])
    page.js(OPEN)
    before = read_column(page, MAIN, 0)
    assert read_sorting(page, MAIN) == [[3, "descending"]]
    page.click(f"{MAIN} th:nth-child(4) button")
    assert read_sorting(page, MAIN) == [[3, "ascending"]] and read_column(page, MAIN, 0) == before[::-1]
    page.click(f"{MAIN} th:nth-child(1) button")
    models = read_column(page, MAIN, 0)
    assert read_sorting(page, MAIN) == [[0, "ascending"]] and models == sorted(models) != before
    for found in (["12,345", "900"], ["900", "12,345"]):
        page.click("#log_files th:nth-child(2) button")
        assert read_column(page, "#log_files", 1) == found
    for order in ("descending", "ascending"):
        page.click("#metric_changes th:nth-child(5) button")
        values = read_column(page, "#metric_changes", 4)
        assert values[-1] == values[-2] == "" and sorted(values[:-2], reverse=order == "descending") == values[:-2]
