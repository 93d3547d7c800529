"""What the guide shows, against a real server; and what an installation that only serves needs."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from importlib.metadata import packages_distributions

import polars as pl
import pytest
from packaging.utils import canonicalize_name

from tests.tasks.serve.test_serve import serve_home
from tests.test_imports import list_needed
from tests.typed import ELSEWHERE, ROOT, indented_blocks, read_page, serve_line

GUIDE = read_page("docs/how-to/recommend.md")
NAMES = {"42": "u7", "1193": "i1", "2858": "i2"}  # of the guide, and of the small log
SNIPPETS = {  # by their beginning: what runs them, and the lists that they print
    "import json": ([sys.executable, "-c"], ["user"], 5),
    "const query": (["node", "--input-type=module", "-e"], ["history"], 5),
    "curl 'http://127": (["bash", "-c"], ["user"], 5),
    "curl -H 'Content-Type": (["bash", "-c"], ["user", "history"], 20),
}


@pytest.mark.parametrize("begins", SNIPPETS)
def test_a_snippet_runs_and_prints_what_python_answers(by_model, begins):
    (home, shops), (command, lists, n) = by_model, SNIPPETS[begins]
    if shutil.which("curl" if begins.startswith("curl") else command[0]) is None:
        pytest.skip("its program is not installed here")
    snippet = next(block for block in indented_blocks(GUIDE) if block.startswith(begins))
    text = re.sub(r"\b(42|1193|2858)\b", lambda found: NAMES[found[0]], snippet)
    with serve_home(home) as address:
        command = [*command, text.replace("http://127.0.0.1:8765", address)]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    shop = shops["random_graph"]
    answers = {"user": shop.recommend_for("u7", n), "history": shop.recommend(["i1", "i2"], n)}
    found = re.findall(r"\bi\d+\b", re.sub(r'"because":\[.*?\]', "", printed))
    assert "of-random_graph" in printed and found == [item for name in lists for item in answers[name]["item_id"]]


PROGRAM = """
import importlib.abc, sys

ALLOWED = {allowed!r}

class OnlyAllowed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names and not top.startswith(("__editable__", "_")):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyAllowed())
from oneclass.flows import commands

sys.exit(commands.main(sys.argv[1], sys.argv[2:]))
"""
PATHS = ("/recommend?user=u7&where=true", "/similar?item=i3", "/popular", "/health", "/metrics", "/docs")


@pytest.mark.slow
def test_serving_imports_nothing_else_and_needs_no_store_and_no_warehouse(copied):
    lists = pl.read_parquet(copied.published / "recommendations.parquet")
    for name in ("models", "matrices"):
        shutil.rmtree(copied.folder / name)
    copied.warehouse.unlink()
    lines = (ROOT / "requirements-serve.txt").read_text().splitlines()
    required = [line for line in lines if not line.startswith("#")]
    needed = list_needed(required, f"{sys.version_info.major}.{sys.version_info.minor}").keys()
    assert not needed & {"prefect", "great-expectations", "matplotlib", "optuna", "sqlalchemy", "pyarrow"}
    allowed = {top for top, of in packages_distributions().items() if needed & set(map(canonicalize_name, of))}
    program = PROGRAM.format(allowed=sorted(allowed | {"oneclass"}))
    of_home = ["--dataset", "small", "--home", str(copied.root)]
    command = [sys.executable, "-c", program, "recommend", *of_home, "--user", "u7", "--n", "5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ELSEWHERE, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = lists.filter(pl.col("user_id") == "u7").sort("rank")["item_id"].to_list()
    assert [item["item_id"] for item in json.loads(done.stdout)["items"]] == expected
    with serve_line("python -c", program, "serve", *of_home, "--port", "0") as (_, address):
        for path in PATHS:
            urllib.request.urlopen(f"{address}{path}", timeout=60).close()
