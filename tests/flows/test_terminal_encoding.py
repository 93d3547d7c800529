"""Commands whose terminal is not UTF-8, on ids and titles in other scripts."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from oneclass.flows import commands
from oneclass.tasks import terminal

LEATHER, TEA, NAME = "Lederg\xfcrtel", "\u70cf\u9f8d\u8336", "Andr\xe9"


@pytest.fixture(scope="module")
def run(prefect_server, tmp_path_factory):
    """Run a command; returns its status, stdout and stderr, in the encoding of its terminal."""
    folder = tmp_path_factory.mktemp("Gesch\xe4ft")
    items = [LEATHER, TEA, *(f"item {number}" for number in range(10))]
    lines = [f"{user},{item}" for user in [NAME, *(f"u{n}" for n in range(20))] for item in items[:9] if item != user]
    (folder / "log.csv").write_text("\n".join(["user_id,item_id", *lines, f"{NAME},{items[11]}"]) + "\n", "utf-8")
    titles = ["item_id,title", *(f"{item},Titel \u2026 {item}" for item in items)]
    (folder / "titles.csv").write_text("\n".join(titles) + "\n", "utf-8")

    def run_command(encoding: str, name: str, *arguments: str) -> tuple[int, str, str]:
        words = ["--dataset", "mine", "--home", str(folder / "home")]
        words += [one.replace("FOLDER", str(folder)) for one in arguments]
        streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):  # as Python opens them
            terminal.escape_unencodable()  # as every program begins
            status = commands.main(name, words)
        printed, said = ((stream.flush(), stream.buffer.getvalue().decode(encoding))[1] for stream in streams)
        return status, printed, said

    status, printed, said = run_command(
        "ascii", "backfill", "--source", "FOLDER/log.csv", "--models", "popularity",
        "--protocols", "leave_one_out", "--set", "publish.titles=FOLDER/titles.csv",
    )  # fmt: skip
    assert (status, said.count("Error")) == (0, 0), said
    assert "Gesch\\xe4ft" in printed and "\\xb1" in printed
    return run_command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "name", "arguments", "shown"),
    [
        ("ascii", "recommend", ("--item", "item 0"), ("Lederg\\xfcrtel", "\\u70cf\\u9f8d\\u8336")),
        ("latin-1", "inspect", ("--source", "FOLDER/log.csv"), (LEATHER, "\\u70cf\\u9f8d\\u8336")),
        ("utf-8", "inspect", ("--source", "FOLDER/log.csv"), (LEATHER, TEA)),
    ],
)
def test_a_terminal_shows_what_it_can(run, encoding, name, arguments, shown):
    status, printed, said = run(encoding, name, *arguments)
    assert status == 0, said
    assert all(text in printed for text in shown)


def test_json_is_whole_on_any_terminal(run):
    status, printed, _ = run("ascii", "recommend", "--item", "item 0", "--json")
    titles = {row["item_id"]: row["title"] for row in json.loads(printed)["items"]}
    assert status == 0 and titles[LEATHER] == f"Titel \u2026 {LEATHER}" and TEA in titles


def test_an_error_is_shown_on_any_terminal(run):
    status, _, said = run("ascii", "recommend", "--user", TEA)
    assert status == 2 and "user \\u70cf\\u9f8d\\u8336: is not among" in said


def test_a_program_begins_so(tmp_path):
    (tmp_path / "log.csv").write_text(f"user_id,item_id\n{NAME},{TEA}\n", "utf-8")
    command = [sys.executable, "-m", "flows.inspect", "--source", str(tmp_path / "log.csv")]
    printed = subprocess.check_output(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, encoding="ascii")
    assert "Andr\\xe9" in printed and "\\u70cf\\u9f8d\\u8336" in printed
