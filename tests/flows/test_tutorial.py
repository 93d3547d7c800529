"""The tutorial, from beginning to end: every file and command of `docs/tutorial.md` as it stands there."""

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

from tests.typed import ELSEWHERE, page, run, served

pytestmark = pytest.mark.slow

PAGE = page("docs/tutorial.md")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def of(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


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

    with served(serve.strip().replace("8765", free_port)) as (server, _):
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
