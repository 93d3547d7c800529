"""What is published, over HTTP: a real server on a port of its own answers, and follows the link with nothing lost."""

import contextlib
import hashlib
import html
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import load
from oneclass.tasks.serve import server
from oneclass.tasks.serve.access import AccessRules, load_key_hashes
from oneclass.tasks.serve.app import create_app
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.serve.server import build_server, check_certificate
from oneclass.tasks.stores import publications
from tests.tasks.conftest import publish_model


@pytest.fixture
def served(copied, split_once):
    """(the home, the address of what serves it): mrf_dense published before, random_graph now."""
    with serve_home(copied) as address:
        yield copied, address


@contextlib.contextmanager
def serve_home(home, rules=None, **tls):
    """The address of a server of a home."""
    following = PublicationWatcher(home.root, "small", seconds=0.05)
    listening = socket.create_server(("127.0.0.1", 0))
    server = build_server(create_app(following, home, rules), **tls)
    thread = threading.Thread(target=server.run, args=([listening],))
    with following:
        thread.start()
        try:
            yield f"http{'s' * bool(tls)}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def get_json(address, path, **query):
    """(status, JSON)."""
    asked = f"{address}{path}?{urllib.parse.urlencode(query, doseq=True)}"
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_for_health(address, wanted):
    """The health once it says so."""
    for _ in range(200):
        _, health = get_json(address, "/health")
        if all(health[name] == value for name, value in wanted.items()):
            return health
        time.sleep(0.05)
    raise AssertionError(health)


def test_every_link_of_the_description_answers_and_it_names_every_parameter(served):
    _, address = served
    with urllib.request.urlopen(f"{address}/docs", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/html")
        page = answer.read().decode()
    _, openapi = get_json(address, "/openapi.json")
    for path, of in openapi["paths"].items():
        for method, operation in of.items():
            assert f"{method.upper()} {path}<" in page
            assert all(f"<code>{one['name']}</code>" in page for one in operation.get("parameters", []))
    links = [html.unescape(link) for link in re.findall(r'<a href="(/[^"]*)"><code>', page)]
    paths = {link.partition("?")[0].replace("/lists/popular", "/lists/{name}") for link in links}
    assert paths == set(openapi["paths"])
    for link in links:
        if link != "/report/" and not link.startswith(("/trending", "/new")):  # no run made one; no event has a time
            with urllib.request.urlopen(address + link, timeout=30) as answer:
                assert answer.read() if link == "/metrics" else json.load(answer), link
    assert "/recommend?user=" in page and "://" not in page


def test_the_report_of_the_last_run_is_served(served):
    home, address = served
    assert get_json(address, "/report/")[0] == 404
    home.report.mkdir()
    for text in ("one run", "the next"):
        (home.report / "index.html").write_text(f"<p>{text}")
        with urllib.request.urlopen(f"{address}/report") as page:
            assert page.read().decode() == f"<p>{text}" and page.headers.get_content_type() == "text/html"
    (home.report / "runs").mkdir()
    (home.report / "runs" / "2026-11-26_0300.html").write_text("<p>earlier")
    with urllib.request.urlopen(f"{address}/report/runs/2026-11-26_0300.html") as page:
        assert page.read().decode() == "<p>earlier"
    assert get_json(address, "/report/runs/2026-11-25_0300.html")[0] == 404
    assert get_json(address, "/report/runs/..%2F..%2Findex.html")[0] in (404, 422)


def test_answers_are_those_of_python(served):
    home, address = served
    shop = load(home.root, "small")
    status, answer = get_json(address, "/recommend", user="u7", n=5)
    assert status == 200 and answer["items"] == shop.recommend_for("u7", n=5).to_dicts()
    assert (answer["publication"], answer["model"]) == ("of-random_graph", "random_graph")
    _, answer = get_json(address, "/recommend", item=["i1", "i2", "nil"], n=3, without=["i5"])
    assert answer["items"] == shop.recommend(["i1", "i2"], n=3, without=["i5"]).to_dicts()
    assert answer["unknown"] == ["nil"]
    _, answer = get_json(address, "/similar", item="i3", n=4)
    assert answer["items"] == shop.similar_items("i3", n=4).to_dicts()
    _, health = get_json(address, "/health")
    assert health["status"] == "ok" and health["publication"] == "of-random_graph" and health["age_seconds"] >= 0
    status, described = get_json(address, "/openapi.json")
    assert status == 200 and {"/recommend", "/similar", "/health"} <= described["paths"].keys()


def test_a_publication_older_than_its_limit_is_stale(served, split_once):
    home, address = served
    publish_model(home, split_once[1], "mrf_dense", "old", max_age=1e-9)
    assert wait_for_health(address, {"publication": "old"})["status"] == "stale"


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
    found = get_json(served[1], path, **query)
    assert found[0] == status and words in json.dumps(found[1])


def test_a_new_publication_is_followed_and_no_request_is_lost(served):
    home, address = served
    answers, over = [], threading.Event()

    def ask():
        while not over.is_set():
            answers.append(get_json(address, "/recommend", user="u7", n=3))

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for name in ("of-mrf_dense", "of-random_graph", "of-mrf_dense"):
        publications.switch_link(home, home.publications / name)
        wait_for_health(address, {"publication": name})
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
    health = wait_for_health(address, {"status": "behind"})
    assert "items.parquet" in health["error"] and health["publication"] == "of-random_graph"
    assert get_json(address, "/recommend", user="u7")[0] == 200
    publish_model(home, split_once[1], "mrf_dense", "mended")
    assert wait_for_health(address, {"status": "ok"})["publication"] == "mended"


def status_of(address, method="GET", context=None, **headers):
    """(status, body) of a request with these headers."""
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8765", 200), ("LOCALHOST", 200), ("[::1]:80", 200), ("rebound.example", 421), ("", 421)],
)
def test_only_requests_under_a_name_of_the_server_are_answered(served, host, status):
    assert status_of(f"{served[1]}/health", Host=host)[0] == status


def test_head_has_no_body_and_the_root_leads_to_the_documentation(served):
    _, address = served
    assert status_of(f"{address}/health", "HEAD") == (200, b"")
    assert b"GET /recommend<" in status_of(address)[1]


def test_no_answer_names_a_user_who_was_not_asked_for(served):
    home, address = served
    _, answer = get_json(address, "/recommend", user="nobody")
    users = load(home.root, "small").users["user_id"]
    assert not [user for user in users if re.search(rf"\b{user}\b", answer["detail"])]


def test_requests_need_one_of_the_keys(copied, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("# the shop's\n" + "".join(f"{hashlib.sha256(key).hexdigest()}  -\n" for key in (b"one", b"two")))
    with serve_home(copied, AccessRules(key_hashes=load_key_hashes(keys))) as address:
        sent = ("Bearer one", "bearer two", "Bearer three", "Basic one", "")
        assert [status_of(f"{address}/health", Authorization=key)[0] for key in sent] == [200, 200, 401, 401, 401]


@pytest.mark.parametrize(("text", "words"), [("one", "line 1: does not begin with a SHA-256"), ("#\n", "has no key")])
def test_a_file_of_keys_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "keys.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        load_key_hashes(tmp_path / "keys.txt")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed, to make a certificate")
def test_tls_by_a_certificate(copied, tmp_path):
    pem = tmp_path / "server.pem"
    words = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run(
        ["openssl", "req", *words, "-keyout", pem, "-out", tmp_path / "c.pem"], check=True, capture_output=True
    )
    pem.write_text(pem.read_text() + (tmp_path / "c.pem").read_text())
    check_certificate(str(pem), None)
    with serve_home(copied, certificate=str(pem)) as address:
        trusted = ssl.create_default_context(cafile=tmp_path / "c.pem")
        assert status_of(f"{address}/health", context=trusted)[0] == 200
    for files, words in (
        ((None, str(pem)), "needs --certificate"),
        ((str(tmp_path / "c.pem"), None), "cannot be used"),
    ):
        with pytest.raises(InputError, match=words):
            check_certificate(*files)


@pytest.fixture(params=["httptools", "h11"])
def protocol(request, monkeypatch):
    """Each of the two protocols in turn."""
    if request.param == "h11":
        monkeypatch.setattr(server, "HttpToolsProtocol", None)
    assert server.choose_protocol().__mro__[2].__module__.startswith(f"uvicorn.protocols.http.{request.param}")


def test_connections_without_a_request_are_closed_and_more_than_the_limit_too(protocol, copied, monkeypatch, caplog):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    halves = (b"GET /health HTTP/1.1\r\n", b"POST /recommend HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    with serve_home(copied) as url, contextlib.ExitStack() as stack:
        address = urllib.parse.urlsplit(url)
        monkeypatch.setattr(server.ConnectionLimits, "max_connections", 5)
        monkeypatch.setattr(server.ConnectionLimits, "_last_log", -server.LOG_SECONDS)
        half_open = [
            stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=10))
            for _ in range(9)
        ]
        for number, connection in enumerate(half_open[:5]):
            connection.sendall(halves[number % 2])  # and no more
        for connection in half_open:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # the server has closed it
        assert status_of(f"{url}/health")[0] == 200
    assert sum("5 connections are open" in line for line in caplog.messages) == 1


def test_headers_without_an_end_are_refused(protocol, copied):
    with serve_home(copied) as url:
        address = urllib.parse.urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /health HTTP/1.1\r\n")
                for _ in range(100):
                    connection.sendall(b"a: " + b"x" * 4000 + b"\r\n")
            with contextlib.suppress(ConnectionError):
                assert connection.recv(12) in (b"HTTP/1.1 431", b"HTTP/1.1 400")
        long = "&".join(f"within=i{number}" for number in range(3000))  # 35 kB, which is allowed
        assert status_of(f"{url}/recommend?user=u7&{long}")[0] == 200


def test_requests_one_after_the_other_on_a_connection_are_answered(protocol, copied):
    with serve_home(copied) as url:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)
        for _ in range(3):
            connection.request("GET", "/recommend?user=u7&n=2")
            assert len(json.load(connection.getresponse())["items"]) == 2
            batch = json.dumps({"queries": [{"user": "u7"}] * 50})
            connection.request("POST", "/recommend", batch, {"Content-Type": "application/json"})
            assert len(json.load(connection.getresponse())["answers"]) == 50
        connection.close()
