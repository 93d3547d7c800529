"""The forms of `/docs` in Chromium: what they send, and what they show."""

import json

import pytest

from oneclass.tasks.recommend import load
from tests.browser import CHROMIUM, open_chromium
from tests.tasks.serve.test_serve import serve_home

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"), pytest.mark.slow]
SHOWN = "new Promise(done => {{ const look = () => {{ const text = document.querySelector({0!r}).textContent; \
text.length > 1 ? done(text) : setTimeout(look, 50) }}; look() }})"


def test_the_forms_send_requests_and_show_answers(copied, tmp_path):
    shop = load(copied.root, "small")
    with serve_home(copied) as address, open_chromium(tmp_path) as page:
        page.call("Page.navigate", url=f"{address}/docs")
        page.js("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        for form in ("form[data-method=GET][data-path='/recommend']", "form[data-method=POST]"):
            page.click(f"{form} input[type=submit]")
            shown = page.js(SHOWN.format(f"{form} output"))
            request, status, _, body = shown.split("\n", 3)
            answer = json.loads(body)
            assert status.startswith("200, ")
            first = shop.users["user_id"][0]
            if "GET" in form:
                assert request == f"GET /recommend?n=5&user={first}" or request == f"GET /recommend?user={first}&n=5"
                assert answer["items"] == shop.recommend_for(first, 5).to_dicts()
            else:
                assert [one["user"] for one in answer["answers"]] == [first, None]
