"""What the benchmarks of a machine that is short of something share: runs that act as a stage begins, and how they ended."""

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import data_contracts

STAGES = (*data_contracts.STAGES, "report")
COMPARED = ("recommendations.parquet", "evaluation.csv")
LONGEST = 400  # seconds that a run may take until it is ended
FAILED = re.compile(r"Task run '([^']*)' - Finished in state Failed")
DONE = re.compile(r"Task run '([^']*)' - Finished in state")

Begins = Callable[[str, int], None]  # called with a stage's name as it begins, and which of that name it is, from 1


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit status, the task that failed, and what it said last."""

    status: int
    failed_at: str
    said: str


@contextlib.contextmanager
def server(folder: Path) -> Iterator[None]:
    """A Prefect server beside the runs, on a free port, its files in a folder; this process's environment names it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    os.environ |= {"PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_API_URL": address}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/health", timeout=1).close()
                break
            time.sleep(0.2)
        else:
            raise SystemExit(f"no Prefect server answers on port {port}")
        yield
    finally:
        process.terminate()
        process.wait(30)


def backfill(home: Path, words: list[str], log: Path, begins: Begins | None = None) -> Ended:
    """A run on the demo, in a process that is forked from this one.

    Args:
        begins: called in that process.
        log: gets what the run says.
    """
    import flows.sequence  # noqa: F401  (once, for all the processes that are forked from this one)
    from flows import backfill

    process = os.fork()
    if process == 0:
        os.setsid()
        signal.alarm(LONGEST)
        with open(log, "wb") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        if begins:
            _watch(begins)
        os._exit(backfill.main(["--dataset", "demo", "--home", str(home), *words]))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = log.read_text(errors="replace")
    *_, at = ["the flow itself", *FAILED.findall(text)]
    return Ended(status, at, _last_words(text) if status in (0, 1, 2) else text.strip().rpartition("\n")[2])


def command(home: Path, words: list[str], log: Path, first: Callable[[], None] | None = None) -> Ended:
    """The same in a process that begins anew, so that all its memory is its own.

    Args:
        first: called in that process before it begins, to put it into a control group, say.
    """
    module = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", "--home", str(home), *words]

    def before() -> None:
        signal.alarm(LONGEST)
        if first:
            first()

    with open(log, "wb") as said:
        status = subprocess.run(
            module, stdout=said, stderr=subprocess.STDOUT, preexec_fn=before, check=False
        ).returncode
    text = log.read_text(errors="replace")
    *_, done = ["the beginning", *DONE.findall(text)]
    *_, at = ["", *FAILED.findall(text)]
    at = f"after {done}" if status < 0 else at
    return Ended(status, at, _last_words(text) if status >= 0 else "")


def digests(home: Path) -> list[str]:
    """Of the files that are held against those of a run that was never disturbed."""
    published = home / "demo" / "published"
    return [hashlib.sha256((published / name).read_bytes()).hexdigest() for name in COMPARED]


def _watch(begins: Begins) -> None:
    """Have `begins` called in this process as each task begins."""
    from prefect import Task

    call, counted = Task.__call__, {}

    def watched(task, *args, **kwargs):
        counted[task.name] = counted.get(task.name, 0) + 1
        begins(task.name, counted[task.name])
        return call(task, *args, **kwargs)

    Task.__call__ = watched


def _last_words(text: str) -> str:
    """The first line of the last paragraph, which is what a command says of its end."""
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    return paragraphs[-1].splitlines()[0] if paragraphs else ""
