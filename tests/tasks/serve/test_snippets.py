"""What the guide shows, against a real server; and what an installation that only serves needs."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions

import polars as pl
import pytest
from packaging.utils import canonicalize_name

from tests.tasks.serve.test_serve import serve_home
from tests.test_imports import list_needed
from tests.typed import ELSEWHERE, ROOT, indented_blocks, read_page

GUIDE = read_page("docs/how-to/recommend.md")
NAMES = {"42": "u7", "1193": "i1", "2858": "i2"}  # of the guide, and of the small log
COMMANDS = {
    "python": [sys.executable, "-c"],
    "javascript": ["node", "--input-type=module", "-e"],
    "curl": ["bash", "-c"],
}


def find_snippet(language):
    """The guide's snippet of a language; of curl both requests."""
    begins = {"python": "import json", "javascript": "const query"}.get(language)
    if begins:
        return next(block for block in indented_blocks(GUIDE) if block.startswith(begins))
    return "\n".join(line for line in re.findall(r"^    (curl .*)$", GUIDE, flags=re.MULTILINE) if "127.0.0.1" in line)


@pytest.mark.parametrize("language", COMMANDS)
def test_a_snippet_runs_and_prints_what_python_answers(by_model, language):
    if shutil.which({"javascript": "node"}.get(language, language)) is None and language != "python":
        pytest.skip(f"{language} is not installed here")
    home, shops = by_model
    shop = shops["random_graph"]
    text = re.sub(r"\b(42|1193|2858)\b", lambda found: NAMES[found[0]], find_snippet(language))
    with serve_home(home) as address:
        text = text.replace("http://127.0.0.1:8765", address)
        printed = subprocess.run(
            [*COMMANDS[language], text], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    if language == "curl":
        decoder = json.JSONDecoder()
        one, end = decoder.raw_decode(printed)
        many = decoder.raw_decode(printed[end:])[0]
        assert one["items"] == shop.recommend_for("u7", 5).to_dicts()
        assert [len(answer["items"]) for answer in many["answers"]] == [20, 20]
        return
    items = shop.recommend_for("u7", 5) if language == "python" else shop.recommend(["i1", "i2"], 5)
    assert "of-random_graph" in printed and re.findall(r"i\d+", printed.partition("[")[2]) == items["item_id"].to_list()


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


REQUIRED = [line for line in (ROOT / "requirements-serve.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.slow
def test_serving_imports_nothing_else_and_needs_no_store_and_no_warehouse(copied):
    lists = pl.read_parquet(copied.published / "recommendations.parquet")
    for name in ("models", "matrices"):
        shutil.rmtree(copied.folder / name)
    copied.warehouse.unlink()
    needed = list_needed(REQUIRED, f"{sys.version_info.major}.{sys.version_info.minor}").keys()
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
