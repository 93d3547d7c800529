"""The page on rules: its data set is read and its commands run; wrong rules stop a run at once."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.run_hooks import prepare_run
from oneclass.tasks.errors import InputError
from tests.typed import indented_blocks, read_page, run_line

PAGE = read_page("docs/how-to/rules.md")
DECLARED = next(block for block in indented_blocks(PAGE) if block.startswith("[items]"))
FAST = ["--models", "mrf_dense", "--protocols", "strong_generalization", "--set", "train.tune=off", "mrf_dense.l2=6.0"]
GENRES = ("tea", "coffee", "cups")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The current folder, with the files that the page names: 60 items, 300 customers and their orders and returns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    generator = np.random.default_rng(1)
    folder = tmp_path / "var" / "datasets"
    folder.mkdir(parents=True)
    (folder / "shop.toml").write_text(DECLARED)
    items = [f"sku-{n},{GENRES[n % 3]},{n},{n % 7 / 10},{n % 4},{n % 5 == 1}" for n in range(60)]
    (folder / "items.csv").write_text("\n".join(["sku,genre,price,margin,stock,adult", *items, ""]))
    customers = [f"C-{user},{user % 60 + 10}" for user in range(300)]
    (folder / "customers.csv").write_text("\n".join(["customer,age", *customers, ""]))
    lines = ["customer,sku,event"]
    for user in range(300):
        bought = generator.choice(30, 8, replace=False) * 2 + user % 2
        lines += [f"C-{user},sku-{item},order" for item in bought]
        lines += [f"C-{user},sku-{generator.integers(60)},return"]
    Path("orders.csv").write_text("\n".join([*lines, ""]))


@pytest.mark.slow
def test_the_commands_of_the_page_run_and_answer_alike(shop, prefect_server):
    backfill, home_page, filtered = re.findall(r"^    (python -m flows\..*)$", PAGE, flags=re.MULTILINE)
    run_line(backfill, *FAST)
    placed = pl.read_parquet("var/shop/published/placements.parquet").filter(user_id="C-42").sort("rank")
    listed = re.findall(r"^ +\d +(sku-\d+)", run_line(home_page), flags=re.MULTILINE)
    assert listed == placed["item_id"].to_list() and len(listed) == 5
    asked = re.findall(r"^ +\d +(sku-\d+)", run_line(filtered), flags=re.MULTILINE)
    assert asked and set(asked) <= {"sku-0", "sku-3"}  # the tea below 5
    names = {"shop": oneclass.load("var", "shop")}
    snippet = next(block for block in indented_blocks(PAGE) if block.startswith("shop.recommend_for"))
    answers = [eval(line, names) for line in snippet.splitlines()]
    assert [answer["item_id"].to_list() for answer in answers] == [listed, asked]


def test_wrong_rules_stop_a_run_before_it_begins(shop):
    for was, wrong, message in (
        ("[rules]", "[rules]\nagain_after_days = 30", "again_after_days = 30.0: needs lists with items that users had"),
        ("price < 20", "price < 'x'", r"\[placements.home\] eligible = \"price < 'x'\": Conversion Error"),
    ):
        Path("var/datasets/shop.toml").write_text(DECLARED.replace(was, wrong))
        with pytest.raises(InputError, match=message):
            prepare_run(BackfillParameters(dataset="shop", source=["orders.csv"], settings={"publish.seen": "exclude"}))
    assert not Path("var/shop/warehouse.duckdb").exists()
