"""What the server says of its requests: metrics, in one process and in several, and the access log."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oneclass.tasks.serve.app import create_app
from oneclass.tasks.stores.home import Home
from tests.tasks.serve.test_list_routes import Asker
from tests.typed import serve_line

SERVE = "python -m flows.serve --dataset small --port 0"


def parse_samples(text):
    """Values by name and labels."""
    families = text_string_to_metric_families(text)
    labels = ("route", "status", "method", "source", "le")
    return {
        (one.name, *(one.labels[label] for label in labels if label in one.labels)): one.value
        for family in families
        for one in family.samples
    }


def test_requests_answers_and_the_age_are_measured(copied):
    ask = Asker(copied)
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
    assert found["oneclass_request_seconds_bucket", "/recommend", "+Inf"] == 6
    assert 0 < found["oneclass_request_seconds_sum", "/recommend"] < 60
    health = ask("GET", "/health").json()["age_seconds"]
    assert health - 5 < found[("oneclass_publication_age_seconds",)] <= health


def test_without_a_publication_there_is_no_age(tmp_path, copied):
    empty = Home(tmp_path / "empty", "small", copied.limits)
    assert ("oneclass_publication_age_seconds",) not in parse_samples(Asker(empty)("GET", "/metrics").text)


def test_the_access_log_has_a_line_per_request_and_no_query(copied, tmp_path):
    ask = Asker(copied)
    with open(tmp_path / "access.jsonl", "a") as log:
        ask.app = create_app(ask.watcher, copied, access_log=log)
        answers = [ask("GET", "/recommend?user=u7"), ask("GET", "/recommend?user=nobody"), ask("GET", "/live")]
    lines = [json.loads(line) for line in (tmp_path / "access.jsonl").read_text().splitlines()]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/recommend", 200),
        ("/recommend", 404),
        ("/live", 200),
    ]
    assert [line["bytes"] for line in lines] == [len(answer.content) for answer in answers]
    assert all(line["method"] == "GET" and line["seconds"] > 0 for line in lines)
    assert "u7" not in (tmp_path / "access.jsonl").read_text()


@pytest.mark.slow
def test_the_access_log_goes_to_standard_output_line_by_line(copied):
    with serve_line(SERVE, "--home", str(copied.root), "--access-log", "-") as (server, address):
        urllib.request.urlopen(f"{address}/live", timeout=60).close()
        assert json.loads(server.stdout.readline())["path"] == "/live"
        server.send_signal(signal.SIGINT)
        assert server.stdout.read() == "" and server.wait(60) == 130  # of Ctrl-C


@pytest.mark.slow
def test_several_processes_answer_and_their_metrics_are_added_up(copied, tmp_path):
    log = tmp_path / "access.jsonl"
    more = ["--home", str(copied.root), "--workers", "2", "--access-log", str(log)]
    with serve_line(SERVE, *more) as (server, address):

        def read(path):
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                return answer.read().decode()

        read("/ready")
        for number in range(40):
            assert json.loads(read(f"/recommend?user=u{number}"))["items"]
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        found = parse_samples(read("/metrics"))
        asked = {key: value for key, value in found.items() if key[0] == "oneclass_requests_total"}
        assert sum(value for key, value in asked.items() if "/recommend" in key) == 40
        assert found["oneclass_answers_total", "user"] == 40
        assert found[("oneclass_publication_age_seconds",)] > 0
        assert len(log.read_text().splitlines()) >= 41
        workers = [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(int(workers[0]), signal.SIGKILL)  # one that dies is replaced
        for number in range(40):
            assert json.loads(read(f"/recommend?user=u{number}"))["items"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
