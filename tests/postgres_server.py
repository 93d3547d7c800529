"""A PostgreSQL server of its own in a temporary folder, on a free port of the loopback interface."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "s3cret/pass#word"


def find_programs() -> Path | None:
    """The folder of PostgreSQL's programs; None if it is not installed. Debian's packages add them to no PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else None


def account_arguments() -> dict[str, Any]:
    """Arguments of subprocess for an account that PostgreSQL accepts: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    accounts = {one.pw_name: one for one in pwd.getpwall()}
    account = accounts.get("postgres") or accounts["nobody"]
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def start_postgres() -> Iterator[str]:
    """Yield the URL of the database `postgres`, of a superuser with a password that a URL must escape."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: no initdb is found")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder, run_as = Path(tempfile.mkdtemp(prefix="oneclass-postgres-")), account_arguments()

    def run_program(name: str, *arguments: str | Path) -> None:
        command = [programs / name, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **run_as)

    try:
        (folder / "password").write_text(PASSWORD)
        if run_as:
            for path in (folder, folder / "password"):
                os.chown(path, run_as["user"], run_as["group"])
        login = ["-U", "shop", "-A", "scram-sha-256", "--pwfile", folder / "password"]
        run_program("initdb", *login, "-E", "UTF8", "--locale", "C", "--no-sync")
        settings = f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"
        options = " ".join(f"-c{setting}" for setting in settings)
        run_program("pg_ctl", "start", "--wait", "-l", folder / "said", "-o", options)
        try:
            yield f"postgresql://shop:s3cret%2Fpass%23word@127.0.0.1:{port}/postgres"
        finally:
            run_program("pg_ctl", "stop", "--mode", "immediate")
    finally:
        shutil.rmtree(folder)


def execute_statements(url: str, *statements: str) -> None:
    """Execute statements in one transaction."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
