"""What is published, over HTTP: a real server on a port of its own answers, and follows the link with nothing lost."""

import contextlib
import hashlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time

import httpx
import pytest
import uvicorn

from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import load
from oneclass.tasks.serve import server
from oneclass.tasks.serve.access import MAX_BODY_BYTES, AccessRules, load_key_hashes
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.serve.schemas import MAX_QUERIES
from oneclass.tasks.serve.server import create_app
from oneclass.tasks.stores import publications
from tests.tasks.conftest import publish_model
from tests.tasks.serve.test_list_routes import wait_until
from tests.typed import ROOT


@pytest.fixture
def served(copied, split_once):
    """(the home, the address of what serves it): mrf_dense published before, random_graph now."""
    with serve_home(copied) as address:
        yield copied, address


@contextlib.contextmanager
def serve_home(home, rules=None, **options):
    """The address of a server of a home, with options of uvicorn."""
    app = create_app(PublicationWatcher(home.root, "small", seconds=0.05), home, rules)
    running = uvicorn.Server(server.configure(app, **options))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


def get_json(address, path, **query):
    answer = httpx.get(f"{address}{path}", params=query, timeout=30)
    return answer.status_code, answer.json()


def wait_for_health(address, wanted):
    wait_until(lambda: wanted.items() <= get_json(address, "/health")[1].items())
    return get_json(address, "/health")[1]


def test_the_report_of_the_last_run_is_served(served):
    home, address = served
    assert get_json(address, "/report/")[0] == 404
    (home.report / "runs").mkdir(parents=True)
    for name in ("index.html", "runs/2026-11-26_0300.html"):
        (home.report / name).write_text(f"<p>{name}")
    page = httpx.get(f"{address}/report", follow_redirects=True)
    assert page.text == "<p>index.html" and page.headers["content-type"].startswith("text/html")
    assert httpx.get(f"{address}/report/runs/2026-11-26_0300.html").text == "<p>runs/2026-11-26_0300.html"
    assert get_json(address, "/report/runs/..%2F..%2Findex.html")[0] == 422


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
    found = [answer["items"] for _, answer in answers if answer["publication"] == "of-mrf_dense"]
    expected = load(home.root, "small").recommend_for("u7", n=3).to_dicts()
    assert all(items == expected for items in found)


def test_a_publication_that_cannot_be_read_leaves_the_old_one_answering(served, split_once):
    home, address = served
    (home.publications / "of-slim" / "model" / "items.parquet").write_bytes(b"?")
    publications.switch_link(home, home.publications / "of-slim")
    health = wait_for_health(address, {"status": "behind"})
    assert "items.parquet" in health["error"] and health["publication"] == "of-random_graph"
    assert get_json(address, "/recommend", user="u7")[0] == 200
    publish_model(home, split_once[1], "mrf_dense", "mended")
    assert wait_for_health(address, {"status": "ok"})["publication"] == "mended"


def test_requests_need_a_name_of_the_server_and_one_of_the_keys(by_model, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("# the shop's\n" + "".join(f"{hashlib.sha256(key).hexdigest()}  -\n" for key in (b"one", b"two")))
    of_host = {"127.0.0.1:8765": 200, "LOCALHOST": 200, "[::1]:80": 200, "rebound.example": 421, "": 421}
    of_key = {"bearer two": 200, "Bearer three": 401, "Basic one": 401, "": 401}
    with serve_home(by_model[0], AccessRules(key_hashes=load_key_hashes(keys))) as address:
        for host, status in of_host.items():
            assert send(address, "GET", "/health", Host=host, Authorization="Bearer one")[0] == status
        for key, status in of_key.items():
            assert send(address, "GET", "/health", Authorization=key)[0] == status
        assert send(address, "HEAD", "/health", Authorization="bearer two") == (200, "")


@pytest.mark.parametrize(("text", "words"), [("one", "line 1: does not begin with a SHA-256"), ("#\n", "has no key")])
def test_a_file_of_keys_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "keys.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        load_key_hashes(tmp_path / "keys.txt")


def send(address, method, path, body=None, **headers):
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    answer = httpx.request(method, f"{address}{path}", content=body, headers=headers, timeout=30)
    return answer.status_code, answer.text


def batch(**fields):
    return json.dumps({"queries": [{"user": "u7"}], **fields}).encode()


NAME = "x" * 5000
ONE = b'{"queries": [{"user": "u7"}], '
BAD_BODIES = {
    "NaN": (ONE + b'"n": NaN}', 422, "finite number"),
    "5,000 digits": (ONE + b'"n": %s}' % (b"9" * 5000), 400, "parsing the body"),
    "a lone surrogate": (b'{"queries": [{"user": "\\ud800"}]}', 422, "valid string"),
    "100,000 unknown names": (batch(**{f"x{at}": 1 for at in range(100_000)}), 422, "not permitted"),
    "nested deeper than Python reads": (b"[" * 100_000, 400, "parsing the body"),
    "no UTF-8": (b'"\xff"', 400, "parsing the body"),
    "too many": (batch(queries=[{"user": "u7"}] * (MAX_QUERIES + 1)), 422, f"at most {MAX_QUERIES} items"),
    "too many items": (batch(queries=[{"user": "u7"}] * 20, n=501), 422, "have 10,020 items, more than 10,000"),
    "neither user nor items": (batch(queries=[{}]), 422, "give either `user`, or the items"),
    "no item": (batch(n=0), 422, "greater than or equal to 1"),
}
BAD_QUERIES = {
    "/recommend?user=u7&item=i1": (422, "give either `user`, or"),
    "/recommend?user=%ED%A0%80": (404, "is not among the 60 users"),
    f"/recommend?user={NAME * 3}": (422, "at most 10000 characters"),
    "/recommend?user=u7&where=%00": (400, "where"),
    f"/similar?item={NAME}": (404, "no user in small likes it"),
    f"/report/runs/{NAME}.html": (422, "pattern"),
    "/recommend?user=u7&page=-1.of-random_graph": (400, "is not the `next` of an answer"),
}


def test_bad_requests_are_refused_with_a_reason_and_without_a_traceback(by_model, capsys):
    with serve_home(by_model[0], http="h11") as address:
        for name, (body, status, words) in BAD_BODIES.items():
            found = send(address, "POST", "/recommend", body, Content_Type="application/json")
            assert found[0] == status and words in found[1] and len(found[1]) < 10_000, (name, *found)
        for path, (status, words) in BAD_QUERIES.items():
            found = send(address, "GET", path)
            assert found[0] == status and words in found[1], (path[:50], *found)
        status, text = send(address, "POST", "/recommend", batch(), Content_Type="text/plain")
        assert status == 415 and "Content-Type: application/json" in text
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("parser", ["httptools", "h11"])
def test_a_body_has_at_most_2_mb_whether_it_says_its_length_or_not(by_model, parser):
    with serve_home(by_model[0], http=parser) as address:
        for chunked in (False, True):
            for length, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413), (10 * MAX_BODY_BYTES, 413)):
                body = batch()[:-1].ljust(length - 1) + b"}"
                sent = (body[at : at + 100_000] for at in range(0, length, 100_000)) if chunked else body
                found, text = send(address, "POST", "/recommend", sent, Content_Type="application/json")
                assert found == status and ("more than 2,000,000 bytes" in text) == (status == 413)
        long = "/recommend?user=u7&n=2&" + "&".join(f"within=i{at}" for at in range(3000))
        assert send(address, "GET", long)[0] == 200  # 35 kB of headers are allowed


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_the_proxy_passes_requests_on_and_closes_slow_and_large_ones(by_model, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serve_home(by_model[0]) as url:
        text = re.sub(r"ssl_.*\n", "", (ROOT / "deploy" / "nginx.conf").read_text())
        for old, new in (("443 ssl", f"127.0.0.1:{port}"), ("127.0.0.1:8765", url[7:]), ("timeout 10s", "timeout 1s")):
            text = text.replace(old, new)
        main = f"pid {tmp_path}/pid; error_log {tmp_path}/log; daemon off; events {{}}\nhttp {{ access_log off;\n"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        main += "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
        (tmp_path / "nginx.conf").write_text(main + text + "}\n")
        with subprocess.Popen(["nginx", "-p", tmp_path, "-c", "nginx.conf"]) as proxy:
            try:
                while not (tmp_path / "pid").exists():  # which it writes once it listens
                    assert proxy.poll() is None
                    time.sleep(0.05)
                address = f"http://127.0.0.1:{port}"
                assert send(address, "POST", "/recommend", batch(), Content_Type="application/json")[0] == 200
                assert send(address, "POST", "/recommend", b"x" * (MAX_BODY_BYTES + 1))[0] == 413
                for half in (b"GET /live HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{"):
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                        connection.sendall(half)
                        assert connection.recv(100).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 408 Request Time-out")
            finally:
                proxy.terminate()
