"""A PostgreSQL server of its own in a temporary folder, on a free port of the loopback interface."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret/pass#word"
IS_ROOT = os.geteuid() == 0


def find_programs() -> Path | None:
    """The folder of PostgreSQL's programs; None if it is not installed. Debian's packages add them to no PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else None


def account_arguments() -> dict[str, Any]:
    """Arguments of subprocess for an account that PostgreSQL accepts: it refuses to run as root."""
    if not IS_ROOT:
        return {}
    with contextlib.suppress(KeyError):
        return {"user": pwd.getpwnam("postgres").pw_uid, "group": pwd.getpwnam("postgres").pw_gid, "extra_groups": []}
    return {"user": pwd.getpwnam("nobody").pw_uid, "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}


@contextlib.contextmanager
def start_postgres() -> Iterator[str]:
    """Yield the URL of the database `postgres`, of a superuser with a password that a URL must escape."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: no initdb is found")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="oneclass-postgres-"))
    run_as = account_arguments()
    try:
        (folder / "password").write_text(PASSWORD)
        if run_as:
            for path in (folder, folder / "password"):
                os.chown(path, run_as["user"], run_as["group"])
        data, said = folder / "data", folder / "said"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "shop", "-A", "scram-sha-256", "--pwfile", folder / "password"]
            + ["-E", "UTF8", "--locale", "C", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **run_as,
        )
        settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"]
        with said.open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *(f"-c{setting}" for setting in settings)],
                stdout=log,
                stderr=log,
                cwd=folder,
                **run_as,
            )
        try:
            until = time.monotonic() + 60
            ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
            while subprocess.run(ready, check=False).returncode:
                assert server.poll() is None and time.monotonic() < until, said.read_text()
                time.sleep(0.05)
            yield f"postgresql://shop:s3cret%2Fpass%23word@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(folder)


def execute_statements(url: str, *statements: str) -> None:
    """Execute statements in one transaction."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
