"""Serving needs no more than `requirements-serve.txt` brings: neither Prefect nor Great Expectations nor Matplotlib."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions

import polars as pl
from packaging.utils import canonicalize_name

from tests.test_dependencies import list_needed
from tests.typed import ELSEWHERE, ROOT

PROGRAM = """
import asyncio, importlib.abc, sys

ALLOWED = {allowed!r}

class OnlyAllowed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names and not top.startswith(("__editable__", "_")):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyAllowed())
from pathlib import Path
from oneclass import load
home = {root!r}
print("ids", *load(home, "small").recommend_for("u7", n=5)["item_id"])
assert "duckdb" not in sys.modules
from oneclass.flows import commands
from oneclass.tasks.serve import server as service
from oneclass.tasks.serve.access import AccessRules

assert commands.main("serve", ["--help"]) == 0
assert commands.main("recommend", ["--dataset", "small", "--home", home, "--user", "u7", "--json"]) == 0
app = service.build_app(Path(home), "small", AccessRules(), None)

async def ask(path):
    query = path.partition("?")
    scope = {{"type": "http", "method": "GET", "path": query[0], "query_string": query[2].encode(), "root_path": "",
             "headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http", "client": None}}
    sent = []
    async def send(message):
        sent.append(message)
    await app(scope, asyncio.Event().wait, send)
    return sent[0]["status"]

recommend = "/recommend?user=u7"
for path in (recommend, recommend + "&where=true", "/similar?item=i3", "/popular", "/health", "/metrics", "/docs"):
    print(path, asyncio.run(ask(path)))
"""


NAMES = [line for line in (ROOT / "requirements-serve.txt").read_text().splitlines() if not line.startswith("#")]


def test_serving_imports_nothing_else_and_needs_no_store_and_no_warehouse(copied):
    lists = pl.read_parquet(copied.published / "recommendations.parquet")
    for name in ("models", "matrices"):
        shutil.rmtree(copied.folder / name)
    copied.warehouse.unlink()
    needed = list_needed(NAMES, f"{sys.version_info.major}.{sys.version_info.minor}").keys()
    assert not needed & {"prefect", "great-expectations", "matplotlib", "optuna", "sqlalchemy", "pyarrow"}
    allowed = {top for top, of in packages_distributions().items() if needed & set(map(canonicalize_name, of))}
    program = PROGRAM.format(allowed=sorted(allowed | {"oneclass"}), root=str(copied.root))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=ELSEWHERE, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = lists.filter(pl.col("user_id") == "u7").sort("rank")["item_id"].to_list()
    assert re.search(r"^ids (.*)$", done.stdout, flags=re.MULTILINE)[1].split() == expected
    answers = re.findall(r"^(/\S+) (\d+)$", done.stdout, flags=re.MULTILINE)
    assert len(answers) == 7 and {status for _, status in answers} == {"200"}


def test_the_file_has_no_name_that_the_project_lacks():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert sorted(NAMES) == NAMES
    assert all(f'"{name}>=' in project for name in NAMES)
