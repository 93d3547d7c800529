"""What the documents tell people to type, run as it stands there."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from oneclass.flows import commands

ROOT = Path(__file__).parents[1]
# for processes in another folder than the checkout, which has the home that the pages have
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "ONECLASS_HOME"} | {"PYTHONPATH": str(ROOT)}


def read_page(name: str) -> str:
    """The text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def indented_blocks(text: str) -> list[str]:
    """The blocks of a text that are indented by four spaces, without these."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, flags=re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n") for block in found]


def run_and_print(program: Callable[[], int | None]) -> str:
    """What a program printed; its exit status must be 0."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert program() in (0, None)
    return out.getvalue()


def run_line(line: str, *more: str) -> str:
    """One line of a shell: the commands of this project in this process, so that what they import is loaded once.

    Args:
        more: further arguments, which make it shorter.
    """
    words = [*shlex.split(line, comments=True), *more]
    if words[:2] == ["python", "-m"]:
        return run_and_print(lambda: commands.main(words[2].removeprefix("flows."), words[3:]))
    command = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def serve_line(line: str, *more: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """The server of a command, in a process of its own, once it answers; and its address."""
    command = [sys.executable, *shlex.split(line)[1:], *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ELSEWHERE) as server:
        try:
            yield server, re.search(r"http://\S+(?=/docs)", server.stdout.readline())[0]
        finally:
            server.terminate()
