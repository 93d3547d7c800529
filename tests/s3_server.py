"""A server of the S3 protocol (moto) in a process of its own on the loopback interface, and the environment that names
it.
"""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

BUCKET = "oneclass-test"


class Server:
    """It has one empty bucket, and forgets everything when it ends.

    Attributes:
        url: of a prefix in the bucket.
        process: once it was started.
    """

    url = f"s3://{BUCKET}/a/prefix"

    def __init__(self, said: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port, self._said = free.getsockname()[1], said

    @property
    def environment(self) -> dict[str, str]:
        """By which botocore finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
        }

    def start(self) -> None:
        """Begin, with an empty bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(command, stdout=said, stderr=said)
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                break
            assert time.monotonic() < until, self._said.read_text()
            time.sleep(0.05)
        self.files.mkdir(BUCKET)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """What it holds, as this process reaches it."""
        return fsspec.filesystem("s3", use_listings_cache=False)

    def names(self) -> list[str]:
        """Every file below the prefix."""
        place = self.url.removeprefix("s3://")
        return [path.removeprefix(f"{place}/") for path in self.files.find(place)]


@contextlib.contextmanager
def start_s3_server(folder: Path) -> Iterator[Server]:
    """A server, which this process's environment, and so that of its children, names."""
    server = Server(folder / "s3_server_said")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        from s3fs import S3FileSystem  # here, since it loads a client of HTTP

        S3FileSystem.clear_instance_cache()  # one that is kept has the address of an earlier server
        server.start()
        try:
            yield server
        finally:
            server.end()
