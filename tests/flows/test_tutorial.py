"""The tutorial, run as it stands: every file and command."""

import json
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

from tests.typed import ELSEWHERE, read_page, run_line, serve_line


def list_blocks(kind: str) -> list[str]:
    """List the tutorial's blocks of code of a kind."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", read_page("docs/tutorial.md"), flags=re.MULTILINE | re.DOTALL)
    return [text for of, text in blocks if of == kind]


@pytest.fixture
def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


@pytest.mark.slow
def test_the_tutorial(prefect_server, tmp_path, monkeypatch, free_port):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    maker, asker = list_blocks("python")
    (declared,) = list_blocks("toml")
    made, first, asked, serve, curls, night, back = list_blocks("sh")
    Path("make_orders.py").write_text(maker)
    run_line(made.strip())
    Path("var/datasets").mkdir(parents=True)
    Path("var/datasets/shop.toml").write_text(declared)

    table = run_line(first.strip())
    score = {model: float(value) for model, value in re.findall(r"^\| (\w+) .*?(0\.\d+) ±", table, flags=re.MULTILINE)}
    assert score.keys() == {"popularity", "mrf_dense", "slim"} and score["mrf_dense"] > score["popularity"]

    for_user, for_basket, why = map(run_line, asked.strip().splitlines())
    lists = (
        pl.read_parquet("var/shop/published/recommendations.parquet").filter(pl.col("user_id") == "C-42").sort("rank")
    )
    best = lists["item_id"].head(5).to_list()
    assert re.findall(r"^ +\d +(sku-\d+) +(?:Tea|Coffee) no\. \d+", for_user, flags=re.MULTILINE) == best
    assert "Not known, left out: sku-1000" in for_basket
    assert len(re.findall(r"^ +\d +sku-\d+ +Tea no\.", for_basket, flags=re.MULTILINE)) == 5
    assert "sku-79: rank " in why
    command = [sys.executable, "-c", asker]
    answers = subprocess.run(command, capture_output=True, text=True, check=True, env=ELSEWHERE).stdout
    assert answers.count("shape: (5, ") == 3

    with serve_line(serve.strip().replace("8765", free_port)) as (server, _):
        requests = [shlex.split(line.replace("8765", free_port))[1] for line in curls.strip().splitlines()]
        user, basket, health = map(fetch_json, requests)
        assert [item["item_id"] for item in user["items"]] == best
        assert len(basket["items"]) == 5 and health["status"] == "ok"
        *moves, retrain, look = night.strip().splitlines()
        for line in moves:
            run_line(line)
        run_line(retrain)
        until_it_is_served(requests[2], health["publication"])
        assert server.poll() is None
    assert look == "python -m flows.promote --dataset shop"
    before = re.search(r"^\* (\S+)", run_line(look), flags=re.MULTILINE)[1]
    assert re.search(r"^\* (\S+)", run_line(back.strip()), flags=re.MULTILINE)[1] == health["publication"] != before


def fetch_json(address: str):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


def until_it_is_served(health: str, former: str) -> None:
    """Wait until another publication than the former one answers."""
    for _ in range(100):
        if fetch_json(health)["publication"] != former:
            return
        time.sleep(0.1)
    raise AssertionError("the server does not follow")
