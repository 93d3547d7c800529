"""Commands whose standard streams are closed, full or unread, as processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PRINTING = """
import logging, subprocess, sys
from oneclass.flows import {name}
from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import DatasetParameters

def command(given: DatasetParameters) -> str:
    with open(given.dataset, "w") as file:
        assert file.fileno() > 2  # what a library prints would get into it
        for line in range(50):
            logging.getLogger("oneclass").warning("a line of the log, number %d", line)
        print("words of a library", file=sys.stderr)
        # A program that it starts, such as Prefect's server, has streams too.
        subprocess.run([sys.executable, "-c", "import sys; sys.stdout.flush(); sys.stderr.flush()"], check=True)
        file.write("the work")
    return "the result"

{name}.{name} = command
sys.argv[1:] = ["--dataset", *sys.argv[1:]]
run_as_program("{name}")
"""
CLOSED = {"input": "<&-", "output": ">&-", "error": "2>&-", "all three": "<&- >&- 2>&-"}


def run_program(program: list[str], redirected: str, **environment: str) -> subprocess.CompletedProcess:
    line = f'"$0" "$@" {redirected}; exit "${{PIPESTATUS[0]}}"'
    return subprocess.run(
        ["bash", "-c", line, *program],
        env={**os.environ, **environment},
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("closed", CLOSED)
def test_a_closed_stream_changes_no_file_and_no_status(tmp_path, closed):
    name = "promote" if closed == "all three" else "cite"  # which starts in a fifth of the time
    ended = run_program([sys.executable, "-c", PRINTING.format(name=name), str(tmp_path / "file")], CLOSED[closed])
    assert (ended.returncode, (tmp_path / "file").read_text()) == (0, "the work")
    assert ("the result" in ended.stdout) == (closed in ("input", "error"))
    assert ("words of a library" in ended.stderr) == (closed in ("input", "output"))
    assert "Traceback" not in ended.stderr


UNWRITABLE = {"> /dev/full": "No space left on device", "| true": "Broken pipe"}


UNSHOWN = "Standard output cannot be written ({}), so the result is not shown."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "redirected"), [("promote", 0, "| true"), ("cite", 1, "> /dev/full"), ("cite", 1, "| true")]
)
def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path, name, status, redirected):
    program = PRINTING.format(name=name).replace('return "the result"', "import time; time.sleep(0.3); return 'result'")
    ended = run_program([sys.executable, "-c", program, str(tmp_path / "file")], redirected)
    assert (ended.returncode, (tmp_path / "file").read_text()) == (status, "the work")
    assert ended.stderr.splitlines()[-1] == UNSHOWN.format(UNWRITABLE[redirected])
    assert "Traceback" not in ended.stderr and "Exception ignored" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "redirected"), [("cite", "2> /dev/full"), ("cite", "2> >(true)")])
def test_a_log_that_nobody_can_read_ends_no_command(tmp_path, name, redirected):
    program = PRINTING.format(name=name).replace('print("words of a library", file=sys.stderr)', "pass")
    program = program.replace("with open", "import time; time.sleep(0.3)\n    with open")
    ended = run_program([sys.executable, "-c", program, str(tmp_path / "file")], redirected)
    assert (ended.returncode, (tmp_path / "file").read_text()) == (0, "the work")
    assert "the result" in ended.stdout


@pytest.mark.slow
def test_a_run_with_all_streams_closed_publishes(ratings, tmp_path, prefect_home):
    wanted = ["--models", "popularity", "--protocols", "leave_one_out", "--home", str(tmp_path / "var")]
    program = [sys.executable, "-m", "flows.backfill", "--dataset", "mine", "--source", str(ratings), *wanted]
    ended = run_program(program, CLOSED["all three"], PREFECT_HOME=str(prefect_home), PREFECT_API_URL="")
    assert ended.returncode == 0
    assert (tmp_path / "var" / "mine" / "published" / "recommendations.parquet").exists()
