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
    head, *lines = re.search(r"^strong_generalization \(.*\n(?:.+\n)+", printed, flags=re.MULTILINE)[0].splitlines()
    rows = [{"model": line.split()[0]} | {name: cut_column(head, line, name) for name in SHOWN} for line in lines]
    best = rows[0]["ndcg@100"]
    rows[0]["ndcg@100"] = f"**{best}**"
    shown = re.findall(r"^\| (?!model|-).* ± .*\|$", README, flags=re.MULTILINE)
    assert len(shown) == 5
    expected = [f"| {' | '.join(row.values())} |".replace("|  |", "| |") for row in rows]
    assert [row for row in expected if row in shown] == shown
    users, count = re.search(r"\((\d+) users\)", head)[1], len(lines)
    assert f"computed on {users} users" in README and f"(five of {count} rows)" in README


def cut_column(head, line, name):
    """Return the cell of a line below a column's name, up to the next one."""
    following = re.search(r"  (?=\S)", head[head.index(name) :])
    end = head.index(name) + following.end() if following else None
    return line[head.index(name) : end].strip()
