"""The wheel outside of the checkout: its commands run from a folder that has packages of the same names."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from oneclass.flows import commands
from tests.flows.conftest import ML

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "models", "sql", "data_contracts")
PACKAGED = ("pyproject.toml", "README.md")

EVERY_COMMAND = """
import json, sys
from oneclass.flows import commands

for line in json.loads(sys.argv[1]):
    sys.argv = ["oneclass", *line]
    try:
        commands.run_script()
    except SystemExit as ended:
        print(f"\\n-- {line[0]} ended with {ended.code}", flush=True)
"""  # beside the script `oneclass`, as which it runs


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the wheel is installed in; built from copies, so that no older build is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for room in (*ROOMS, "oneclass"):
        shutil.copytree(ROOT / room, source / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in PACKAGED:
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    files = {path for room in ROOMS for path in (source / room).rglob("*") if path.is_file()}
    assert {f"oneclass/{path.relative_to(source)}" for path in files} <= names
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", "--target", folder / "site", wheel], check=True)
    return folder / "site"


@pytest.fixture
def elsewhere(installed, prefect_server, tmp_path):
    """What a process is started with in a folder whose own packages must not be taken."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"raise ImportError('{room} of the current folder')\n")
    environment = {**os.environ, "PYTHONPATH": str(installed), "PREFECT_API_URL": prefect_server}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each command would compile all of it anew
    return {"cwd": tmp_path, "env": environment, "text": True}


def test_the_script_has_every_command(installed, elsewhere):
    named = {path.stem for path in (ROOT / "flows").glob("*.py") if "__main__" in path.read_text()}
    assert named == set(commands.COMMANDS) == {*RUNS, "serve", "forget"}
    said = subprocess.check_output([installed / "bin" / "oneclass", "recommend", "--help"], **elsewhere)
    assert "Usage: oneclass recommend" in said


LEAST = ["--models", "popularity", "--protocols", "leave_one_out"]
RUNS = {  # command: its arguments, and what it says
    "backfill": ([*LEAST, "--set", "publish.top_n=5"], "Tables: "),
    "inspect": ([], "The first events, as they are read"),
    "nightly_retrain": (LEAST, "Tables: "),
    "promote": (["--model", "popularity"], "popularity"),
    "recommend": (["--user", "7", "--json"], '"items"'),
    "explain": (["--user", "7", "--n", "3"], "Published: "),
    "cite": ([], "Folder: "),
    "tune": (["--model", "mrf_dense", "--trials", "1"], "# Trial 1, the best of 1 trials"),
    "deploy": ([], "prefect deployment run nightly-retrain/nightly-retrain-ml-latest-small"),
}


def test_every_command_runs_outside_the_checkout(installed, elsewhere, after_first, ratings):
    """All but the server, one after the other in one process, so that what they import is loaded once."""
    (after_first / "ml-latest-small" / "landing").mkdir()
    shutil.copy(ratings, after_first / "ml-latest-small" / "landing")
    lines = [[name, *ML, "--home", str(after_first), *arguments] for name, (arguments, _) in RUNS.items()]
    (installed / "bin" / "every_command.py").write_text(EVERY_COMMAND)
    command = [sys.executable, installed / "bin" / "every_command.py", json.dumps(lines)]
    done = subprocess.run(command, **elsewhere, capture_output=True, check=False)
    said = re.split(r"^-- (\w+) ended with (\S+)$", done.stdout, flags=re.MULTILINE)
    assert said[1::3] == list(RUNS), done.stderr
    assert said[2::3] == ["0"] * len(RUNS), done.stderr
    for (name, (_, words)), text in zip(RUNS.items(), said[::3]):
        assert words in text, name
    assert (after_first / "ml-latest-small" / "report" / "users" / "7.html").exists()


def test_it_serves_outside_the_checkout(installed, elsewhere, first):
    command = [installed / "bin" / "oneclass", "serve", *ML, "--home", str(first[0]), "--port", "0"]
    with subprocess.Popen(command, **elsewhere, stdout=subprocess.PIPE) as server:
        address = re.search(r"http://\S+(?=/docs)", server.stdout.readline())[0]
        with urllib.request.urlopen(f"{address}/recommend?user=7&n=3", timeout=60) as answer:
            assert len(json.load(answer)["items"]) == 3
        server.terminate()
    assert server.returncode == -signal.SIGTERM
