"""What the guide and the page `/docs` show, against a real server: curl, Python, JavaScript, and forms in Chromium."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from importlib.resources import files

import pytest

from oneclass.tasks.recommend import load
from tests.browser import CHROMIUM, open_chromium
from tests.tasks.serve.test_serve import serve_home
from tests.typed import indented_blocks, read_page

GUIDE = read_page("docs/how-to/recommend.md")
NAMES = {"42": "u7", "1193": "i1", "2858": "i2"}  # of the guide, and of the small log
COMMANDS = {
    "python": [sys.executable, "-c"],
    "javascript": ["node", "--input-type=module", "-e"],
    "curl": ["bash", "-c"],
}


def find_snippet(language):
    """The guide's snippet of a language; of curl both requests."""
    begins = {"python": "import json", "javascript": "const query"}.get(language)
    if begins:
        return next(block for block in indented_blocks(GUIDE) if block.startswith(begins))
    return "\n".join(line for line in re.findall(r"^    (curl .*)$", GUIDE, flags=re.MULTILINE) if "127.0.0.1" in line)


@pytest.mark.parametrize("language", COMMANDS)
def test_a_snippet_runs_and_prints_what_python_answers(copied, language):
    if shutil.which({"javascript": "node"}.get(language, language)) is None and language != "python":
        pytest.skip(f"{language} is not installed here")
    shop = load(copied.root, "small")
    text = re.sub(r"\b(42|1193|2858)\b", lambda found: NAMES[found[0]], find_snippet(language))
    with serve_home(copied) as address:
        text = text.replace("http://127.0.0.1:8765", address)
        printed = subprocess.run(
            [*COMMANDS[language], text], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    if language == "curl":
        decoder = json.JSONDecoder()
        one, end = decoder.raw_decode(printed)
        many = decoder.raw_decode(printed[end:])[0]
        assert one["items"] == shop.recommend_for("u7", 5).to_dicts()
        assert [len(answer["items"]) for answer in many["answers"]] == [20, 20]
        return
    items = shop.recommend_for("u7", 5) if language == "python" else shop.recommend(["i1", "i2"], 5)
    assert "of-random_graph" in printed and re.findall(r"i\d+", printed.partition("[")[2]) == items["item_id"].to_list()


FORMS = "[...document.querySelectorAll('form')].map(form => `${form.dataset.method} ${form.dataset.path}`)"
WAIT = "new Promise(done => {{ const look = () => {} ? done(true) : setTimeout(look, 50); look() }})"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_to_try_it_sends_requests_and_shows_answers(copied, tmp_path):
    shop = load(copied.root, "small")
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    with serve_home(copied) as address, open_chromium(tmp_path) as page:
        page.call("Page.setBypassCSP", enabled=True)
        page.call("Page.navigate", url=f"{address}/docs")
        page.js(WAIT.format("document.querySelector('form[data-method=POST]')"))
        with urllib.request.urlopen(f"{address}/openapi.json") as answer:
            paths = json.load(answer)["paths"]
        assert page.js(FORMS) == [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
        items = shop.list_items("popular", 2)["item_id"].to_list()
        for form in ("form[data-method=GET][data-path='/recommend']", "form[data-method=POST]"):
            page.click(f"{form} button")
            page.js(WAIT.format(f"document.querySelector({form + ' pre'!r}).textContent.length > 1"))
            request, status, _, body = page.js(f"document.querySelector({form + ' pre'!r}).textContent").split("\n", 3)
            answer = json.loads(body)
            assert status == "200"
            if "GET" in form:
                assert request == f"GET /recommend?item={items[0]}&item={items[1]}"
                assert answer["items"] == shop.recommend(items).to_dicts()
            else:
                assert answer["answers"][0]["items"] == shop.recommend(items, 5).to_dicts()
        found = page.js(f"{axe}; axe.run(document).then(found => found.violations.map(one => one.help))")
        assert found == []
