"""Batches, pages, lists for everybody, kept answers, probes, metrics and the access log."""

import asyncio
import json
import os
import re
import shutil
import signal
import time
import urllib.request
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from oneclass.tasks.serve.access import AccessRules, open_access_log
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.serve.server import create_app
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home
from tests.tasks.conftest import publish_model
from tests.typed import serve_line


class Asker:
    """Asks an application in this process; each request has a client of its own."""

    def __init__(self, home, rules=None):
        self.watcher = PublicationWatcher(home.root, "small", seconds=0.02)
        self.app = create_app(self.watcher, home, rules)

    def __call__(self, method, path, base="http://localhost", **request):
        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, **request)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def ask(by_model):
    """Ask of random_graph, for tests that change nothing of the home."""
    return Asker(by_model[0])


def test_a_batch_answers_as_single_requests_and_python_do(by_model, ask):
    shop = by_model[1]["random_graph"]
    options = {"n": 4, "without": ["i5"], "within": [f"i{item}" for item in range(20)], "seen": "include"}
    queries = [{"user": "u7"}, {"items": ["i1", "i2", "nil"]}, {"items": []}, {"user": "nobody"}, {"user": "u3"}]
    answer = ask("POST", "/recommend", json={"queries": queries, **options}).json()
    user, history, empty, missing, last = answer.pop("answers")
    single = ask("GET", "/recommend", params={"user": "u7", **options}).json()
    assert user == {"user": "u7", "unknown": [], "error": None, "items": single.pop("items")}
    assert {**answer, "unknown": []} == single
    assert history["items"] == shop.recommend(["i1", "i2"], **options).to_dicts() and history["unknown"] == ["nil"]
    assert empty["items"] == shop.recommend([], **options).to_dicts() and empty["items"]
    assert missing["items"] == [] and missing["error"].startswith("user nobody: is not among the 60 users of small")
    assert not [one for one in shop.users["user_id"] if re.search(rf"\b{one}\b", missing["error"])]
    assert last["items"] == shop.recommend_for("u3", **options).to_dicts()
    similar = ask("GET", "/similar", params={"item": "i3", "n": 4}).json()
    assert similar["items"] == shop.similar_items("i3", n=4).to_dicts()
    assert (similar["publication"], similar["model"]) == ("of-random_graph", "random_graph")


def test_pages_put_together_are_the_whole_list(ask):
    for path, query in {"/recommend": {"user": "u7"}, "/similar": {"item": "i3"}, "/popular": {}}.items():
        whole = ask("GET", path, params={**query, "n": 11}).json()
        assert whole["next"] is None and len(whole["items"]) == 11
        items, page = [], {}
        while page is not None:
            answer = ask("GET", path, params={**query, "n": 11, "limit": 3, **page}).json()
            items += answer["items"]
            page = answer["next"] and {"page": answer["next"]}
        assert items == whole["items"]
    body = {"queries": [{"user": "u7"}, {"items": ["i1"]}], "n": 5, "limit": 3}
    first = ask("POST", "/recommend", json=body).json()
    second = ask("POST", "/recommend", json={**body, "page": first["next"]}).json()
    whole = ask("POST", "/recommend", json={**body, "limit": None}).json()
    one, two, both = ([answer["items"] for answer in part["answers"]] for part in (first, second, whole))
    assert [start + rest for start, rest in zip(one, two, strict=True)] == both and [*map(len, one)] == [3, 3]


def test_a_page_of_another_publication_is_refused(copied, ask):
    query = {"user": "u7", "n": 5, "limit": 2}
    token = ask("GET", "/recommend", params=query).json()["next"]
    publications.switch_link(copied, copied.publications / "of-mrf_dense")
    later = Asker(copied)
    gone = later("GET", "/recommend", params={**query, "page": token})
    assert gone.status_code == 410 and "of-random_graph, and of-mrf_dense is served" in gone.json()["detail"]
    batch = {"queries": [{"user": "u7"}], "n": 5, "limit": 2}
    assert later("POST", "/recommend", json={**batch, "page": token}).status_code == 410


def test_an_answer_is_current_until_the_next_publication(copied):
    publications.switch_link(copied, copied.publications / "of-mrf_dense")
    ask, tags = Asker(copied), {}
    for path in ("/recommend?user=u7", "/similar?item=i3", "/popular"):
        answer = ask("GET", path)
        tag = tags[path] = answer.headers["etag"]
        assert answer.status_code == 200 and answer.headers["cache-control"] == "private, no-cache"
        for known in (f'"other", W/{tag}', "*"):
            kept = ask("GET", path, headers={"If-None-Match": known})
            assert (kept.status_code, kept.content, kept.headers["etag"]) == (304, b"", tag)
        assert ask("GET", path, headers={"If-None-Match": '"other"'}).json() == answer.json()
    publications.switch_link(copied, copied.publications / "of-random_graph")
    ask = Asker(copied)
    for path, tag in tags.items():
        later = ask("GET", path, headers={"If-None-Match": tag})
        assert later.status_code == 200 and later.headers["etag"] != tag


def test_probes_need_neither_name_nor_key_and_tell_what_is_served(copied, split_once, tmp_path):
    empty = Home(tmp_path / "empty", "small", copied.limits)
    empty.folder.mkdir(parents=True)
    ask = Asker(empty, AccessRules(key_hashes=(b"0" * 64,)))

    def probe(path):
        answer = ask("GET", path, base="http://10.0.0.7:8765")
        return answer.status_code, answer.json()["status"]

    assert probe("/live") == (200, "live") and probe("/ready") == (503, "empty")
    assert ask("GET", "/recommend?user=u7").status_code == 401
    ask = Asker(empty)
    assert ("oneclass_publication_age_seconds",) not in parse_samples(ask("GET", "/metrics").text)
    waiting = ask("GET", "/recommend?user=u7")
    assert waiting.status_code == 503 and waiting.headers["retry-after"] == "1"
    shutil.copytree(copied.folder, empty.folder, symlinks=True, dirs_exist_ok=True)
    asyncio.run(ask.watcher.__aenter__())
    wait_until(lambda: probe("/ready") == (200, "ready"))
    (empty.root / "titles.csv").write_text("item_id,title\n")
    publish_model(empty, split_once[1], "mrf_dense", "old", max_age=1e-9)
    wait_until(lambda: probe("/ready") == (503, "stale"))
    assert ask("GET", "/health").json()["status"] == "stale"
    assert probe("/live") == (200, "live") and ask("GET", "/recommend?user=u7").status_code == 200
    asyncio.run(ask.watcher.__aexit__())


def wait_until(holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("did not come to hold")


def parse_samples(text):
    families = text_string_to_metric_families(text)
    labels = ("route", "status", "method", "source")
    return {
        (one.name, *(one.labels[label] for label in labels if label in one.labels)): one.value
        for family in families
        for one in family.samples
    }


def test_requests_answers_and_the_age_are_measured(by_model):
    ask = Asker(by_model[0])
    for query in ("user=u7", "user=u8", "item=i1", "item=unheard+of", "user=nobody"):
        ask("GET", f"/recommend?{query}")
    ask("POST", "/recommend", json={"queries": [{"user": "u7"}, {"items": []}, {"user": "nobody"}]})
    ask("GET", "/lists/popular")
    ask("BREW", "/no/such/address")
    found = parse_samples(ask("GET", "/metrics").text)
    requests = {name[1:]: value for name, value in found.items() if name[0] == "oneclass_requests_total"}
    assert requests == {
        ("/recommend", "200", "GET"): 4,
        ("/recommend", "404", "GET"): 1,
        ("/recommend", "200", "POST"): 1,
        ("/lists/{name}", "200", "GET"): 1,
        ("other", "404", "other"): 1,
    }
    answers = {name[1]: value for name, value in found.items() if name[0] == "oneclass_answers_total"}
    assert answers == {"user": 3, "history": 1, "popular": 2}
    assert found["oneclass_request_seconds_count", "/recommend"] == 6
    assert 0 < found["oneclass_request_seconds_sum", "/recommend"] < 60
    health = ask("GET", "/health").json()["age_seconds"]
    assert health - 5 < found[("oneclass_publication_age_seconds",)] <= health


def test_the_access_log_has_a_line_per_request_and_no_query(by_model, tmp_path):
    ask = Asker(by_model[0])
    with open_access_log(str(tmp_path / "access.jsonl")) as log:
        ask.app = create_app(ask.watcher, by_model[0], access_log=log)
        answers = [ask("GET", path) for path in ("/recommend?user=u7", "/recommend?user=nobody", "/live")]
    text = (tmp_path / "access.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["path"] for line in lines] == ["/recommend", "/recommend", "/live"] and "u7" not in text
    for line, answer in zip(lines, answers, strict=True):
        assert (line["method"], line["status"], line["bytes"]) == ("GET", answer.status_code, len(answer.content))
        assert line["seconds"] > 0


@pytest.mark.slow
def test_several_processes_answer_and_their_metrics_are_added_up(by_model):
    line = "python -m flows.serve --dataset small --port 0 --workers 2 --access-log -"
    with serve_line(line, "--home", str(by_model[0].root)) as (server, address):

        def read(path):
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                return answer.read().decode()

        read("/ready")
        for number in range(40):
            assert json.loads(read(f"/recommend?user=u{number}"))["items"]
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        found = parse_samples(read("/metrics"))
        assert found["oneclass_requests_total", "/recommend", "200", "GET"] == 40
        assert found["oneclass_answers_total", "user"] == 40 and found[("oneclass_publication_age_seconds",)] > 0
        paths = [json.loads(server.stdout.readline())["path"] for _ in range(41)]  # of the access log
        assert sorted(paths) == ["/ready", *["/recommend"] * 40]
        workers = [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(int(workers[0]), signal.SIGKILL)  # one that dies is replaced
        for number in range(40):
            assert json.loads(read(f"/recommend?user=u{number}"))["items"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
