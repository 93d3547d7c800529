"""The README's table is what its first command prints, to the digit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typed import ROOT, read_page

README = read_page("README.md")
SHOWN = ("ndcg@100", "mean_rank", "minus the best")


@pytest.fixture
def printed(tmp_path):
    """What the command prints: in the file that `.ci/run`, which has run it, names; else by a run."""
    if file := os.environ.get("ONECLASS_DEMO_OUTPUT"):
        return Path(file).read_text(encoding="utf-8")
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", "--home", str(tmp_path / "home")]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_table_is_what_the_first_command_prints(printed):
    section = r"^## strong_generalization\n\n(\d+) users\n\n((?:\|.*\n)+)"
    users, table = re.search(section, printed, flags=re.MULTILINE).groups()
    head, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    shown = re.findall(r"^\| (?!model|-).* ± .*\|$", README, flags=re.MULTILINE)
    assert len(shown) == 5
    expected = [f"| {' | '.join(row[name] for name in ('model', *SHOWN))} |".replace("|  |", "| |") for row in rows]
    assert [row for row in expected if row in shown] == shown
    assert f"computed on {users} users" in README and f"(five of {len(rows)} rows)" in README
