"""The wheel outside of the checkout: its commands run from a folder that has packages of the same names."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flows import console
from tests.flows.conftest import FAST

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "models", "sql", "data_contracts")
ML = ["--dataset", "ml-latest-small"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the wheel is installed in; built from copies, so that no older build is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    files = {path for room in ROOMS for path in (source / room).rglob("*") if path.is_file()}
    assert {str(path.relative_to(source)) for path in files} <= names
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", "--target", folder / "site", wheel], check=True)
    return folder / "site"


@pytest.fixture
def run(installed, prefect_server, tmp_path):
    """Run the script `oneclass` in a folder whose own packages must not be taken; what it printed."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"raise ImportError('{room} of the current folder')\n")
    environment = {**os.environ, "PYTHONPATH": str(installed), "PREFECT_API_URL": prefect_server}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each command would compile all of it anew

    def oneclass(*arguments, status=0):
        command = [installed / "bin" / "oneclass", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return oneclass


def test_the_script_has_every_command(run):
    named = {path.stem for path in (ROOT / "flows").glob("*.py") if "__main__" in path.read_text()}
    assert named == set(console.COMMANDS)
    assert all(name in run("--help") for name in named)
    assert "usage: oneclass recommend" in run("recommend", "--help")
    assert "usage: oneclass COMMAND" in run("recomend", status=2)


def test_commands_run_outside_the_checkout(run, after_first, ratings):
    where = [*ML, "--home", str(after_first)]
    arguments = [*FAST, "--models", "popularity", "--protocols", "leave_one_out", "--set", "publish.top_n=5"]
    assert "Tables: " in run("backfill", *arguments, "--home", str(after_first), "--source", str(ratings))
    assert "Published: " in run("explain", *where, "--user", "7", "--top", "3")
    assert (after_first / "ml-latest-small" / "report" / "users" / "7.html").exists()
    assert '"items"' in run("recommend", *where, "--user", "7", "--json")
