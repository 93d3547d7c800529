"""The command `flows.serve`: what is published, over HTTP on this machine, following each new publication.

python -m flows.serve --dataset shop --port 8765
"""

import argparse
import socket

from oneclass.flows import cli
from oneclass.flows.parameters import ServeParameters
from oneclass.tasks.errors import InputError

HOST = "127.0.0.1"  # there is no authentication: others come by way of a proxy


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "What is published, over HTTP on the loopback: /recommend, /similar, /health, /docs and /report/."
    return cli.build_parser("flows.serve", description, ServeParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command until it is told to end; its exit status."""
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
    of_dataset = home.Home(root, dataset)
    with reloader.PublicationWatcher(root, dataset) as followed, _open_socket(given.port) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        print(f"{dataset}, publication {followed.shop.publication}: {address}/docs; Ctrl-C ends it", flush=True)
        settings = uvicorn.Config(create_app(followed, of_dataset), log_level="warning", access_log=False)
        uvicorn.Server(settings).run(sockets=[listening])
    return "Ended."


def _open_socket(port: int) -> socket.socket:
    try:
        listening = socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be listened on ({error}). Choose another.") from error
    # asyncio does so for the sockets that it makes; without it an answer waits for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


if __name__ == "__main__":
    cli.run_main(main)
