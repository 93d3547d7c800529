"""What surrounds commands: signals, help, terminals that are not UTF-8, streams that are closed or full."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from oneclass.flows import commands, prefect_server
from tests.flows.conftest import query_rows

ROOT = Path(__file__).parents[2]
STUCK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from oneclass.flows import signals
signals.SHUTDOWN_SECONDS = 0.5
with signals.handle_signals():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except BaseException:
            pass  # as a library does that asks a dead server again and again
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_does_not_end_in_its_own_time_is_ended(number, status):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=ROOT, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == status
    assert said.count("Interrupted by") == 1 and signal.Signals(number).name in said


def own_server(prefect_home):
    """The environment of a process that starts a server of its own."""
    return {**os.environ, "PREFECT_HOME": str(prefect_home), "PREFECT_API_URL": ""}


def at_work_in(group):
    """The processes of a group, without zombies."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one.cmdline())
    return found


def kill_the_rest_of(group):
    """What a test that failed would leave at work, for hours."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"]], ids=["alone", "with workers"])
def test_a_run_signalled_with_its_whole_group_leaves_no_server_and_its_true_state(
    tmp_path, prefect_home, request, more
):
    environment = {**own_server(prefect_home), "ONECLASS_HOME": str(tmp_path / "home")}
    sizes = ["demo.users=300", "demo.items=100", "demo.likes=5000"]
    models = ["--models", "mrf_dense", *more]
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", *models, "--set", *sizes]
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True)
    request.addfinalizer(lambda: kill_the_rest_of(process.pid))
    deadline = time.monotonic() + 300  # a busy machine takes minutes to start the server and the workers
    while "new log" not in (tmp_path / "said").read_text():
        assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "said").read_text()
        time.sleep(0.2)
    children = psutil.Process(process.pid).children()
    workers = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    assert len(workers) == (2 if more else 0)
    servers = [one for one in children if "create_app" in " ".join(one.cmdline())]
    assert len(servers) == 1
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    # As the README promises; it takes the 4 s of `signals.SHUTDOWN_SECONDS` and little more.
    assert time.monotonic() - began < 10
    said = (tmp_path / "said").read_text()
    assert said.splitlines()[-1].startswith("Interrupted by SIGTERM") and "Traceback" not in said, said
    # They are groups of their own, and find that the run is gone.
    assert not psutil.wait_procs([*workers, *servers], 15)[1]
    while more and at_work_in(process.pid):
        assert time.monotonic() - began < 15, at_work_in(process.pid)
        time.sleep(0.2)
    assert not at_work_in(process.pid)
    assert query_rows(tmp_path / "home", "select state from operations.runs", "demo") == [("cancelled",)]
    page = (tmp_path / "home" / "index.html").read_text()
    assert "demo" in page and "cancelled" in page


SERVED = """
from oneclass.flows import prefect_server
prefect_server.start_server()
with prefect_server.ensure_server():
    print("ready", flush=True)
    import time
    time.sleep(600)
"""


@pytest.mark.slow
def test_three_servers_start_at_once_on_a_fresh_prefect_home_and_end_with_their_runs(tmp_path):
    options = {"cwd": ROOT, "env": own_server(tmp_path / "prefect"), "stdout": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(3):
            processes.append(stack.enter_context(subprocess.Popen([sys.executable, "-c", SERVED], **options)))
            stack.callback(processes[-1].kill)
        assert [process.stdout.readline() for process in processes] == [b"ready\n"] * 3
        servers = [server for process in processes for server in psutil.Process(process.pid).children()]
    assert len(servers) == 3 and not psutil.wait_procs(servers, 15)[1]


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("profiles.toml", 'active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://host/api"', True),
        ("prefect.toml", (ROOT / "prefect.toml").read_text(), False),
        ("prefect.toml", '[api]\nurl = "http://host/api"', True),
        ("pyproject.toml", "[tool.prefect.api]\nurl = 'http://host/api'", True),
        (".env", "PREFECT_API_URL=http://host/api", True),
    ],
)
def test_a_server_that_a_file_may_name_is_left_to_prefect(tmp_path, monkeypatch, file, text, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    monkeypatch.delenv("PREFECT_PROFILE", raising=False)
    assert not prefect_server.has_configured_server()
    (tmp_path / file).write_text(text)
    assert prefect_server.has_configured_server() == named


def test_version_help_and_misspelt_commands(monkeypatch, capsys):
    # The script sets it where it is not set, and would leave it to the tests after this one.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def run_script(*arguments):
        monkeypatch.setattr(sys, "argv", ["oneclass", *arguments])
        return commands.run_app(commands.build_script(), list(arguments)), *capsys.readouterr()

    assert run_script("--version") == (0, f"oneclass {version('oneclass')}\n", "")
    status, out, _ = run_script("--help")
    assert status == 0 and all(f" {name} " in out for name in commands.COMMANDS)
    assert run_script() == (0, out, "")
    for name, answer in (("nightly-retrai", 'Did you mean "nightly-retrain"?'), ("xyz", 'Unknown command "xyz".')):
        status, out, errors = run_script(name)
        assert status == 2 and not out and answer in errors


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_ends_with_an_example_that_parses(name, capsys):
    app = commands.build_app(name)
    assert app(shlex.split(commands.COMMANDS[name]))[1].dataset == "mine"
    assert commands.main(name, ["--version"]) == 0
    assert capsys.readouterr().out == f"oneclass {version('oneclass')}\n"
    assert commands.main(name, ["--help"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"For example:  python -m flows.{name} {commands.COMMANDS[name]}"
    flags = [argument.name for argument in app.assemble_argument_collection() if argument.name != "*"]
    assert {"--dataset", "--home", "--debug"} <= set(flags)
    described = re.sub(r"[│\s]+", " ", out)
    assert all(re.search(rf" {flag} (\S+ )?\w", described) for flag in flags)


def test_a_terminal_shows_what_it_can_and_the_rest_escaped(tmp_path):
    (tmp_path / "log.csv").write_text("user_id,item_id\nAndr\xe9,\u70cf\u9f8d\u8336\n", "utf-8")
    command = [sys.executable, "-m", "flows.inspect", "--source", str(tmp_path / "log.csv")]
    printed = subprocess.check_output(command, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, encoding="latin-1")
    assert "Andr\xe9" in printed and "\\u70cf\\u9f8d\\u8336" in printed


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


def run_program(program: str, file: Path, redirected: str) -> subprocess.CompletedProcess:
    line = f'"$0" "$@" {redirected}; exit "${{PIPESTATUS[0]}}"'
    command = ["bash", "-c", line, sys.executable, "-c", program, str(file)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    options = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "timeout": 500, "env": environment}
    return subprocess.run(command, **options, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("closed", CLOSED)
def test_a_closed_stream_changes_no_file_and_no_status(tmp_path, closed):
    name = "promote" if closed == "all three" else "cite"  # which starts in a fifth of the time
    ended = run_program(PRINTING.format(name=name), tmp_path / "file", CLOSED[closed])
    assert (ended.returncode, (tmp_path / "file").read_text()) == (0, "the work")
    assert ("the result" in ended.stdout) == (closed in ("input", "error"))
    assert ("words of a library" in ended.stderr) == (closed in ("input", "output"))
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "redirected"), [("promote", 0, "| true"), ("cite", 1, "> /dev/full"), ("cite", 1, "| true")]
)
def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path, name, status, redirected):
    program = PRINTING.format(name=name).replace('return "the result"', "import time; time.sleep(0.3); return 'result'")
    ended = run_program(program, tmp_path / "file", redirected)
    assert (ended.returncode, (tmp_path / "file").read_text()) == (status, "the work")
    reason = "Broken pipe" if redirected == "| true" else "No space left on device"
    expected = f"Standard output cannot be written ({reason}), so the result is not shown."
    assert ended.stderr.splitlines()[-1] == expected
    assert "Traceback" not in ended.stderr and "Exception ignored" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("redirected", ["2> /dev/full", "2> >(true)"])
def test_a_log_that_nobody_can_read_ends_no_command(tmp_path, redirected):
    program = PRINTING.format(name="cite").replace('print("words of a library", file=sys.stderr)', "pass")
    program = program.replace("with open", "import time; time.sleep(0.3)\n    with open")
    ended = run_program(program, tmp_path / "file", redirected)
    assert (ended.returncode, (tmp_path / "file").read_text()) == (0, "the work")
    assert "the result" in ended.stdout
