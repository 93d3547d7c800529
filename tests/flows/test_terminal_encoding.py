"""Commands in processes of their own whose terminal is not UTF-8, on ids and titles in other scripts."""

import json
import os
import subprocess
import sys

import pytest

LEATHER, TEA, NAME = "Lederg\xfcrtel", "\u70cf\u9f8d\u8336", "Andr\xe9"


@pytest.fixture(scope="module")
def run(prefect_server, tmp_path_factory):
    """Run a command in a process; returns its status, stdout and stderr, in the encoding of its terminal."""
    folder = tmp_path_factory.mktemp("Gesch\xe4ft")
    items = [LEATHER, TEA, *(f"item {number}" for number in range(10))]
    lines = [f"{user},{item}" for user in [NAME, *(f"u{n}" for n in range(20))] for item in items[:9] if item != user]
    (folder / "log.csv").write_text("\n".join(["user_id,item_id", *lines, f"{NAME},{items[11]}"]) + "\n", "utf-8")
    titles = ["item_id,title", *(f"{item},Titel \u2026 {item}" for item in items)]
    (folder / "titles.csv").write_text("\n".join(titles) + "\n", "utf-8")

    def run_command(encoding: str, name: str, *arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", f"flows.{name}", "--dataset", "mine", "--home", str(folder / "home")]
        environment = os.environ | {"PYTHONIOENCODING": encoding, "PREFECT_API_URL": prefect_server}
        ended = subprocess.run(
            [*command, *(one.replace("FOLDER", str(folder)) for one in arguments)],
            capture_output=True, encoding=encoding, env=environment, check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout, ended.stderr

    status, printed, said = run_command(
        "ascii", "backfill", "--source", "FOLDER/log.csv", "--models", "popularity",
        "--protocols", "leave_one_out", "--titles", "FOLDER/titles.csv", "--set", "binarize.min_user_edges=0",
        "binarize.min_item_edges=0",
    )  # fmt: skip
    assert (status, said.count("Error")) == (0, 0), said
    assert "Gesch\\xe4ft" in printed and "+-" in printed
    return run_command


@pytest.mark.parametrize(
    ("encoding", "name", "arguments", "shown"),
    [
        ("ascii", "recommend", ("--item", "item 0"), ("Lederg\\xfcrtel", "\\u70cf\\u9f8d\\u8336")),
        ("ascii", "explain", ("--user", NAME), ("Andr\\xe9", "\\u70cf\\u9f8d\\u8336")),
        ("ascii", "inspect", ("--source", "FOLDER/log.csv"), ("Lederg\\xfcrtel", "\\u70cf\\u9f8d\\u8336", "+---")),
        ("ascii", "promote", (), ("popularity",)),
        ("ascii", "data_docs", (), ("Gesch\\xe4ft",)),
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
