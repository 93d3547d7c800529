"""The report as a reader has it: in Chromium, from a copied folder, with no network."""

import base64
import csv
import io
import re
import shutil
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from tests.browser import CHROMIUM, open_chromium

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
MAIN = "#main-strong_generalization"


@pytest.fixture(scope="module")
def file(home, tmp_path_factory):
    """The page alone, where nothing else is."""
    return shutil.copy(home.report / "index.html", tmp_path_factory.mktemp("alone") / "page.html")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with open_chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


def read_column(page, table, place):
    return page.js(f"[...document.querySelector('{table}').tBodies[0].rows].map(r => r.cells[{place}].textContent)")


def read_sorting(page, table):
    """Which columns say that they sort the table, and how."""
    return page.js(
        f"[...document.querySelectorAll('{table} th')].flatMap((h, i) => h.ariaSort ? [[i, h.ariaSort]] : [])"
    )


@pytest.mark.slow
def test_nothing_fails_and_nothing_leaves_the_machine(page, file):
    page.open(file)
    methods = {event["method"] for event in page.events}
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert not methods & {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}


@pytest.mark.slow
def test_what_is_put_into_the_page_neither_runs_nor_fetches(page, file):
    page.open(file)
    page.js(
        "{ const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); }"
    )
    assert page.js("window.ran") is None
    assert page.js("fetch('http://127.0.0.1:9/').then(() => 'went', e => 'refused')") == "refused"
    outward = {
        event["params"]["requestId"]
        for event in page.events
        if event["method"] == "Network.requestWillBeSent" and event["params"]["request"]["url"].startswith("http")
    }
    failed = {
        event["params"]["requestId"]: event["params"].get("blockedReason")
        for event in page.events
        if event["method"] == "Network.loadingFailed"
    }
    assert all(failed.get(request) == "csp" for request in outward)
    assert page.js("document.querySelector('img').naturalWidth") == 0


def test_tables_sort_by_click(page, file):
    page.open(file)
    before = read_column(page, MAIN, 0)
    assert read_sorting(page, MAIN) == [[3, "descending"]]
    page.click(f"{MAIN} th:nth-child(4) button")
    assert read_sorting(page, MAIN) == [[3, "ascending"]] and read_column(page, MAIN, 0) == before[::-1]
    page.click(f"{MAIN} th:nth-child(1) button")
    models = read_column(page, MAIN, 0)
    assert read_sorting(page, MAIN) == [[0, "ascending"]] and models == sorted(models) != before


def test_tables_sort_by_keyboard_and_as_numbers(page, file):
    page.open(file)
    page.js("document.querySelector('#log_files th:nth-child(2) button').focus()")
    page.key("Enter", 13, "\r")
    assert read_sorting(page, "#log_files") == [[1, "descending"]] and read_column(page, "#log_files", 1) == [
        "12,345",
        "900",
    ]
    page.key(" ", 32, " ")
    assert read_sorting(page, "#log_files") == [[1, "ascending"]] and read_column(page, "#log_files", 1) == [
        "900",
        "12,345",
    ]


def test_what_is_not_there_stays_last(page, file):
    page.open(file)
    for order in ("descending", "ascending"):
        page.click("#metric_changes th:nth-child(5) button")
        assert read_sorting(page, "#metric_changes") == [[4, order]]
        values = read_column(page, "#metric_changes", 4)
        assert values[-1] == values[-2] == "" and sorted(values[:-2], reverse=order == "descending") == values[:-2]


def test_the_keyboard_reaches_the_content_and_the_wide_tables(page, file):
    page.open(file, width=360)
    page.key("Tab", 9)
    assert page.js("document.activeElement.className") == "skip"
    assert page.js("document.activeElement.getBoundingClientRect().top") >= 0
    page.key("Enter", 13, "\r")
    assert page.js("location.hash") == "#main" and page.js("document.activeElement.id") == "main"
    wide = "[...document.querySelectorAll('.wide')]"
    assert page.js(f"{wide}.some(e => e.scrollWidth > e.clientWidth)")
    assert page.js(f"{wide}.every(e => e.tabIndex === 0 && e.getAttribute('aria-label'))")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_figures_follow_the_theme(page, file, dark):
    page.open(file, dark=dark)
    texts = page.js("[...document.querySelectorAll('svg text')].map(t => getComputedStyle(t).fill)")
    assert len(texts) > 100
    ground = relative_luminance(page.js("getComputedStyle(document.body).backgroundColor"))
    for colour in {page.js("getComputedStyle(document.body).color"), *texts}:
        light, shade = sorted((relative_luminance(colour) + 0.05, ground + 0.05), reverse=True)
        assert light / shade >= 4.5
    assert (ground < 0.1) == dark


def test_it_prints_in_ink_on_white_with_its_details_open(page, file):
    page.open(file, dark=True, media="print")
    assert relative_luminance(page.js("getComputedStyle(document.body).backgroundColor")) > 0.9
    assert relative_luminance(page.js("getComputedStyle(document.querySelector('svg text')).fill")) < 0.2
    assert page.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.js("document.querySelector('#contracts').getBoundingClientRect().height") > 0


def test_tables_and_drawings_can_be_saved(page, file):
    page.open(file)
    page.js("HTMLAnchorElement.prototype.click = () => {}")
    text = page.js(
        "new Promise(done => { URL.createObjectURL = blob => { blob.text().then(done); return '#'; }; "
        "document.querySelector('[aria-label=\"Save log_files as CSV\"]').click(); })"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["events"] for row in rows] == ["12345", "900"] and rows[1]["file"] == "<first>.csv"
    for form in ("SVG", "PNG"):
        name, address = page.js(
            "new Promise(done => { HTMLAnchorElement.prototype.click = "
            "function () { done([this.download, this.href]); };"
            f"document.querySelector('[aria-label$=\"as {form}\"]').click(); }})"
        )
        assert name.endswith(f".{form.lower()}")
        if form == "SVG":
            ElementTree.fromstring(unquote(address.partition(",")[2]))
        else:
            image = base64.b64decode(address.partition("base64,")[2])
            assert image.startswith(b"\x89PNG") and int.from_bytes(image[16:20], "big") > 600 and len(image) > 5_000


def relative_luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`."""
    shares = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    return sum(
        weight * (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
        for weight, share in zip((0.2126, 0.7152, 0.0722), shares, strict=True)
    )
