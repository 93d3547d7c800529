"""The command `flows.serve`: serve the current publication over HTTP on this machine, reloading each new one.

python -m flows.serve --dataset shop --port 8765
"""

import argparse
import socket

from oneclass.flows import cli
from oneclass.flows.parameters import ServeParameters
from oneclass.tasks.errors import InputError

HOST = "127.0.0.1"  # no authentication; expose it by a proxy


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "What is published, over HTTP on the loopback: /recommend, /similar, /health, /docs and /report/."
    return cli.build_parser("flows.serve", description, ServeParameters)


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends the command, and return its exit status."""
    given = parser().parse_args(arguments)
    return cli.run_without_prefect(lambda: _serve(cli.parse_parameters(ServeParameters, given)), debug=given.debug)


def _serve(given: ServeParameters) -> str:
    import uvicorn

    from oneclass.tasks import datasets
    from oneclass.tasks.serve import reloader
    from oneclass.tasks.serve.app import create_app
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    dataset = datasets.load_dataset(given.dataset, root).name
    dataset_home = home.Home(root, dataset)
    with reloader.PublicationWatcher(root, dataset) as watcher, _open_socket(given.port) as server_socket:
        address = f"http://{HOST}:{server_socket.getsockname()[1]}"
        print(f"{dataset}, publication {watcher.shop.publication}: {address}/docs; Ctrl-C ends it", flush=True)
        settings = uvicorn.Config(create_app(watcher, dataset_home), log_level="warning", access_log=False)
        uvicorn.Server(settings).run(sockets=[server_socket])
    return "Ended."


def _open_socket(port: int) -> socket.socket:
    try:
        server_socket = socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be listened on ({error}). Choose another.") from error
    # As asyncio does for its own sockets; without it a response waits for 40 ms.
    server_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server_socket


if __name__ == "__main__":
    cli.run_main(main)
