"""The tutorial, from beginning to end: every file and command of `docs/tutorial.md` as it stands there."""

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
# for processes in the shop's folder, which is not the checkout, and which has the home that the page has
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "ONECLASS_HOME"} | {"PYTHONPATH": str(ROOT)}
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def of(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def printed(program) -> str:
    """What a program printed; its exit status must be 0."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert program() in (0, None)
    return out.getvalue()


def run(line: str) -> str:
    """One line of a shell: the commands of this project in this process, so that what they import is loaded once."""
    words = shlex.split(line)
    if words[:2] == ["python", "-m"]:
        return printed(lambda: importlib.import_module(words[2]).main(words[3:]))
    command = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_the_tutorial(prefect_server, tmp_path, monkeypatch, free_port):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    maker, asker = of("python")
    (declared,) = of("toml")
    made, first, asked, serve, curls, night, back = of("sh")
    Path("make_orders.py").write_text(maker)
    run(made.strip())
    Path("var/datasets").mkdir(parents=True)
    Path("var/datasets/shop.toml").write_text(declared)

    table = run(first.strip())
    score = {model: float(value) for model, value in re.findall(r"^(\w+) .*?(0\.\d+) ±", table, flags=re.MULTILINE)}
    assert score.keys() == {"popularity", "mrf_dense", "slim"} and score["mrf_dense"] > score["popularity"]

    for_user, for_basket, why = map(run, asked.strip().splitlines())
    lists = (
        pl.read_parquet("var/shop/published/recommendations.parquet").filter(pl.col("user_id") == "C-42").sort("rank")
    )
    best = lists["item_id"].head(5).to_list()
    assert re.findall(r"^ +\d +(sku-\d+) +(?:Tea|Coffee) no\. \d+", for_user, flags=re.MULTILINE) == best
    assert "Not known, left out: sku-1000" in for_basket
    assert len(re.findall(r"^ +\d +sku-\d+ +Tea no\.", for_basket, flags=re.MULTILINE)) == 5
    assert "sku-79: place " in why
    command = [sys.executable, "-c", asker]
    answers = subprocess.run(command, capture_output=True, text=True, check=True, env=ELSEWHERE).stdout
    assert answers.count("shape: (5, ") == 3

    with served(serve.strip().replace("8765", free_port)) as server:
        requests = [shlex.split(line.replace("8765", free_port))[1] for line in curls.strip().splitlines()]
        user, basket, health = map(get, requests)
        assert [item["item_id"] for item in user["items"]] == best
        assert len(basket["items"]) == 5 and health["status"] == "ok"
        *moves, retrain, look = night.strip().splitlines()
        for line in moves:
            run(line)
        run(retrain)
        until_it_is_served(requests[2], health["publication"])
        assert server.poll() is None
    assert look == "python -m flows.promote --dataset shop"
    before = re.search(r"^\* (\S+)", run(look), flags=re.MULTILINE)[1]
    assert re.search(r"^\* (\S+)", run(back.strip()), flags=re.MULTILINE)[1] == health["publication"] != before


@contextlib.contextmanager
def served(line: str):
    """The server of a command, in a process of its own, once it answers."""
    command = [sys.executable, *shlex.split(line)[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ELSEWHERE) as server:
        assert "/docs" in server.stdout.readline()
        yield server
        server.terminate()


def get(address: str):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


def until_it_is_served(health: str, former: str) -> None:
    """Wait until another publication than the former one answers."""

    for _ in range(100):
        if get(health)["publication"] != former:
            return
        time.sleep(0.1)
    raise AssertionError("the server does not follow")
