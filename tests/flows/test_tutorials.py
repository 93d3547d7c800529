"""The tutorials, run as they stand: every file and command of theirs."""

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


def list_blocks(name: str, kind: str) -> list[str]:
    """List the blocks of code of a page that are of a kind."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", read_page(name), flags=re.MULTILINE | re.DOTALL)
    return [text for of, text in blocks if of == kind]


@pytest.fixture
def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


@pytest.mark.slow
def test_the_tutorial(prefect_server, tmp_path, monkeypatch, free_port):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    maker, asker = list_blocks("docs/tutorial.md", "python")
    (declared,) = list_blocks("docs/tutorial.md", "toml")
    made, first, asked, serve, curls, night, back = list_blocks("docs/tutorial.md", "sh")
    Path("make_orders.py").write_text(maker)
    run_line(made.strip())
    Path("var/datasets").mkdir(parents=True)
    Path("var/datasets/shop.toml").write_text(declared)

    table = run_line(first.strip())
    score = {model: float(value) for model, value in re.findall(r"^(\w+) .*?(0\.\d+) ±", table, flags=re.MULTILINE)}
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


@pytest.mark.slow
def test_the_tutorial_of_products(prefect_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    maker, looker = list_blocks("docs/tutorial_products.md", "python")
    (declared,) = list_blocks("docs/tutorial_products.md", "toml")
    shown = [text.strip().splitlines() for text in list_blocks("docs/tutorial_products.md", "sh")]
    made, first, asked, looked, night = shown
    Path("make_shop.py").write_text(maker)
    Path("look.py").write_text(looker)
    for line in made:
        run_line(line)
    products = pl.read_csv("products.csv")
    ordered = pl.read_csv("orders.csv")["sku"]
    assert len(products) == 400 and (products["stock"] == 0).sum() == 30
    assert (~products["sku"].is_in(ordered.implode())).sum() >= 20
    Path("var/datasets").mkdir(parents=True)
    Path("var/datasets/shop.toml").write_text(declared)
    assert "cold_items (" in run_line(first[0])
    for line in asked:
        assert " P" in run_line(line)

    def look() -> dict[str, int]:
        return {
            name: int(value) for name, value in re.findall(r"^(.*): (\d+)$", run_line(looked[0]), flags=re.MULTILINE)
        }

    seen = look()
    assert seen["sold out"] == 0 and seen["most of one department in a list"] <= 12
    assert seen["customers who see a new product"] >= 60 and seen["most new products in a list"] <= 2
    lists = pl.read_parquet("var/shop/published/placements.parquet").join(products, left_on="item_id", right_on="sku")
    assert lists["price"].max() < 100 and lists["stock"].min() > 0
    for line in night[:2]:
        subprocess.run(line, shell=True, check=True)
    run_line(night[2])
    assert look()["sold out"] == 0
    published = pl.read_parquet("var/shop/published/model/items.parquet")
    assert "P400" in published["item_id"].to_list()
    assert "P8" not in pl.read_parquet("var/shop/published/recommendations.parquet")["item_id"].to_list()


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
