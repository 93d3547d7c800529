"""What is published, over HTTP: a real server on a port of its own answers, and follows the link with nothing lost."""

import html
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import uvicorn

from oneclass.tasks.recommend import load
from oneclass.tasks.serve.app import create_app
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.stores import publications
from tests.tasks.conftest import publish_model


@pytest.fixture
def served(copied, split_once):
    """(the home, the address of what serves it): mrf_dense published before, random_graph now."""
    following = PublicationWatcher(copied.root, "small", seconds=0.05)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(following, copied), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    with following:
        thread.start()
        yield copied, f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def get(address, path, **query):
    """(status, JSON)."""
    asked = f"{address}{path}?{urllib.parse.urlencode(query, doseq=True)}"
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def until(address, wanted):
    """The health once it says so."""
    for _ in range(200):
        _, health = get(address, "/health")
        if all(health[name] == value for name, value in wanted.items()):
            return health
        time.sleep(0.05)
    raise AssertionError(health)


def test_every_link_of_the_description_answers_and_it_names_every_parameter(served):
    _, address = served
    with urllib.request.urlopen(f"{address}/docs", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/html")
        page = answer.read().decode()
    _, openapi = get(address, "/openapi.json")
    for path, of in openapi["paths"].items():
        assert f"GET {path}<" in page
        assert all(f"<code>{one['name']}</code>" in page for one in of["get"].get("parameters", []))
    links = [html.unescape(link) for link in re.findall(r'<a href="(/[^"]*)"><code>', page)]
    assert {link.partition("?")[0] for link in links} == set(openapi["paths"])
    for link in links:
        if link != "/report/":  # no run made one
            with urllib.request.urlopen(address + link, timeout=30) as answer:
                assert json.load(answer), link
    assert "/recommend?user=" in page and "://" not in page


def test_the_report_of_the_last_run_is_served(served):
    home, address = served
    assert get(address, "/report/")[0] == 404
    home.report.mkdir()
    for text in ("one run", "the next"):
        (home.report / "index.html").write_text(f"<p>{text}")
        with urllib.request.urlopen(f"{address}/report") as page:
            assert page.read().decode() == f"<p>{text}" and page.headers.get_content_type() == "text/html"


def test_answers_are_those_of_python(served):
    home, address = served
    shop = load(home.root, "small")
    status, answer = get(address, "/recommend", user="u7", n=5)
    assert status == 200 and answer["items"] == shop.recommend_for("u7", n=5).to_dicts()
    assert (answer["publication"], answer["model"]) == ("of-random_graph", "random_graph")
    _, answer = get(address, "/recommend", item=["i1", "i2", "nil"], n=3, without=["i5"])
    assert answer["items"] == shop.recommend(["i1", "i2"], n=3, without=["i5"]).to_dicts()
    assert answer["unknown"] == ["nil"]
    _, answer = get(address, "/similar", item="i3", n=4)
    assert answer["items"] == shop.similar_items("i3", n=4).to_dicts()
    _, health = get(address, "/health")
    assert health["status"] == "ok" and health["publication"] == "of-random_graph" and health["age_seconds"] >= 0
    status, described = get(address, "/openapi.json")
    assert status == 200 and {"/recommend", "/similar", "/health"} <= described["paths"].keys()
    fields = described["components"]["schemas"]["Health"]["properties"]
    assert [name for name, field in fields.items() if field.get("deprecated")] == ["trouble"]


def test_a_publication_older_than_its_limit_is_stale(served, split_once):
    home, address = served
    publish_model(home, split_once[1], "mrf_dense", "old", max_age=1e-9)
    assert until(address, {"publication": "old"})["status"] == "stale"


@pytest.mark.parametrize(
    ("path", "query", "status", "words"),
    [
        ("/recommend", {"user": "nobody"}, 404, "user nobody: is not among the 60 users of small"),
        ("/recommend", {}, 400, "give `user`, or `item`"),
        ("/recommend", {"user": "u7", "item": "i1"}, 400, "give `user`, or `item`"),
        ("/recommend", {"user": "u7", "n": 0}, 422, "greater than or equal to 1"),
        ("/similar", {"item": "nil"}, 404, "item nil: no user in small likes it"),
    ],
)
def test_unanswerable_requests_are_reported(served, path, query, status, words):
    found = get(served[1], path, **query)
    assert found[0] == status and words in json.dumps(found[1])


def test_a_new_publication_is_followed_and_no_request_is_lost(served):
    home, address = served
    answers, over = [], threading.Event()

    def ask():
        while not over.is_set():
            answers.append(get(address, "/recommend", user="u7", n=3))

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for name in ("of-mrf_dense", "of-random_graph", "of-mrf_dense"):
        publications.switch_link(home, home.publications / name)
        until(address, {"publication": name})
    over.set()
    for thread in asking:
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert {answer["publication"] for _, answer in answers} == {"of-mrf_dense", "of-random_graph"}
    expected = {name: load(home.root, "small") for name in ["of-mrf_dense"]}
    for _, answer in answers:
        if answer["publication"] in expected:
            shop = expected[answer["publication"]]
            assert answer["items"] == shop.recommend_for("u7", n=3).to_dicts()


def test_a_publication_that_cannot_be_read_leaves_the_old_one_answering(served, split_once):
    home, address = served
    damaged = home.publications / "of-slim" / "model" / "items.parquet"
    damaged.write_bytes(b"?")
    publications.switch_link(home, home.publications / "of-slim")
    health = until(address, {"status": "behind"})
    assert "items.parquet" in health["error"] == health["trouble"] and health["publication"] == "of-random_graph"
    assert get(address, "/recommend", user="u7")[0] == 200
    publish_model(home, split_once[1], "mrf_dense", "mended")
    assert until(address, {"status": "ok"})["publication"] == "mended"
