"""What goes wrong outside: each has one clear message, its exit status, and leaves the warehouse as it was."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from oneclass.flows import commands, promote
from oneclass.tasks import datasets, settings

BASE = ["--dataset", "ml-latest-small", "--models", "popularity"]


def write_file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


BAD_SOURCES = (
    (lambda folder: folder / "absent.csv", "absent.csv: no such file"),
    (lambda folder: write_file(folder / "empty.csv", b""), "empty.csv: is empty"),
    (lambda folder: write_file(folder / "columns.csv", b"who,what\n1,2\n"), "columns.csv"),
)


NEEDED = {name: ["--user", "1"] for name in ("explain", "forget", "recommend")} | {"tune": ["--model", "slim"]}


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_refuses_a_name_that_is_none_in_the_same_words(tmp_path, capsys, name):
    arguments = ["--dataset", "My Data", "--home", str(tmp_path / "home"), *NEEDED.get(name, [])]
    assert commands.main(name, arguments) == 2
    assert f"data set 'My Data': unknown, and cannot be a name. {datasets.NAME_RULE}. Choose" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_model_whose_extra_is_absent_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(settings.REQUIRED_EXTRAS, "neural", "no_such_module")
    arguments = ["--models", "popularity,mult_vae", "--home", str(tmp_path / "home")]
    assert commands.main("backfill", [*BASE, *arguments]) == 2
    stderr = capsys.readouterr().err
    assert "model mult_vae: needs no_such_module" in stderr and "'.[neural]'" in stderr and "Traceback" not in stderr
    assert not (tmp_path / "home").exists()


EARLY = """
import json, sys
from oneclass.flows import commands

for line in json.loads(sys.argv[1]):
    status = commands.main(line[0], line[1:])
    print(status, *sorted({"prefect", "numba", "great_expectations"} & set(sys.modules)))
"""


def run_early(*lines: list[str]) -> subprocess.CompletedProcess:
    """Run commands in one process that may start a server of its own; it prints status and heavy modules after each."""
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    command = [sys.executable, "-c", EARLY, json.dumps(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def test_a_log_that_cannot_be_read_is_reported_before_anything_is_loaded(tmp_path):
    paths = [str(make(tmp_path)) for make, _ in BAD_SOURCES]
    base = ["--dataset", "mine", "--home", str(tmp_path / "home"), "--source"]
    ended = run_early(*[["backfill", *base, path] for path in paths])
    assert ended.stdout == len(paths) * "2\n" and "Traceback" not in ended.stderr
    for path, (_, message) in zip(paths, BAD_SOURCES, strict=True):
        assert message in ended.stderr
        assert len(re.findall(rf"^{re.escape(path)}[:, ]", ended.stderr, re.MULTILINE)) == 1
    assert not (tmp_path / "home").exists()


def test_a_wrong_argument_is_reported_before_prefect_is_loaded(tmp_path, ratings):
    """Also those of a command whose logs are read; a dry run loads no Prefect either."""
    base = ["--home", str(tmp_path), "--source", str(ratings), "--dataset"]
    nights = ["--since", "2026-01-01", "--until", "2026-01-02", "--every", "1d"]
    ended = run_early(
        ["backfill", *base, "ml-1n"],
        ["backfill", *base, "mine", "--set", "binarize.tresh=1"],
        ["backfill", *base, "mine", "--set", "wmf.factor=1"],
        ["backfill", *base, "mine", "--models", "slimmer"],
        ["nightly_retrain", "--home", str(tmp_path), "--dataset", "mine", "--models", "slimmer"],
        ["tune", "--dataset", "mine", "--model", "wmf", "--trials", "0"],
        ["backfill", *base, "mine", *nights, "--dry-run"],
    )
    said = ended.stdout.splitlines()
    assert said[:6] == ["2", *["2 numba"] * 5] and said[-1] == "0 numba"
    assert "mine, every 1d: 2 nights, 0 done, 2 missing" in said
    for message in (
        "data set ml-1n: unknown",
        "binarize.tresh: unknown",
        "wmf.factor: unknown",
        "model slimmer: unknown",
    ):
        assert message in ended.stderr
    assert "for --trials. Must be >= 1." in ended.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights.npy"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "weights.npy"),
        OSError("Not enough free space to write 152275600 bytes after offset 128"),  # numpy's own, before it writes
        OSError("38068900 requested and 1024 written"),  # and after
        pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)"),
    ],
    ids=str,
)
def test_a_disk_that_fills_while_arrays_are_saved_is_reported(capsys, monkeypatch, error):
    def fail(given: promote.PromoteParameters) -> str:
        raise error

    monkeypatch.setattr(promote, "promote", fail)
    assert commands.main("promote", ["--dataset", "demo", "--debug"]) == 1
    assert "the disk is full" in capsys.readouterr().err.splitlines()[-1]


def in_a_namespace(script: str, *arguments: str, api: str) -> subprocess.CompletedProcess:
    """Run a shell script that may mount file systems of its own; nothing of it is seen outside."""
    environment = {**os.environ, "PREFECT_API_URL": api}
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


needs_namespaces = pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    ).returncode
    != 0,
    reason="mounting a small file system needs user namespaces",
)

COMMAND = f'"$1" -m flows.backfill {" ".join(BASE)} --source "$2" --home "$3"'


def digest_files(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("left", [400_000, 3_000_000])
def test_a_full_disk_is_reported_and_loses_nothing(tmp_path, first, prefect_server, left):
    """What a first run left fits; then the disk is filled, and a log that would not fit comes in."""
    big = tmp_path / "ratings-2.csv"
    rows = (f"{user},{film},4,1000000000\n" for user in range(1000, 4000) for film in range(100))
    big.write_text("userId,movieId,rating,timestamp\n" + "".join(rows))
    script = (
        'mount -t tmpfs -o size=64m tmpfs "$3"; cp -r "$5/." "$3"; cp -r "$3" "$4/before"; left=$(df --output=avail '
        '-B1 "$3" | tail -1); '
        f'head -c $((left - {left})) /dev/zero > "$3/filler"; '
        f'{COMMAND} && status=0 || status=$?; rm "$3/filler"; cp -r "$3" "$4/after"; exit $status'
    )
    home, kept = tmp_path / "home", tmp_path / "kept"
    home.mkdir()
    kept.mkdir()
    done = in_a_namespace(script, sys.executable, str(big), str(home), str(kept), str(first[0]), api=prefect_server)
    assert done.returncode == 1, done.stderr
    assert "the disk is full" in done.stderr and "Traceback" not in done.stderr
    published = [digest_files(kept / moment / "ml-latest-small" / "publications") for moment in ("before", "after")]
    assert published[0] and published[0] == published[1]
