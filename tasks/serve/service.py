"""Serve a data set's publications until SIGTERM or SIGINT."""

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from oneclass.tasks.errors import InputError
from oneclass.tasks.serve import server
from oneclass.tasks.serve.access import AccessRules
from oneclass.tasks.serve.app import create_app
from oneclass.tasks.serve.observer import open_access_log
from oneclass.tasks.serve.reloader import PublicationWatcher
from oneclass.tasks.stores.home import Home


@dataclass(frozen=True)
class ServiceOptions:
    """How a data set is served.

    Attributes:
        host, port: the address to listen on; port 0 is any free one.
        rules: what a request must have.
        certificate, private_key: files of TLS in PEM.
        wait: whether to start before the first publication.
        workers: processes that answer on the port.
        access_log: as `observer.open_access_log`; None for none.
    """

    host: str
    port: int
    rules: AccessRules
    certificate: str | None = None
    private_key: str | None = None
    wait: bool = False
    workers: int = 1
    access_log: str | None = None


def run_service(root: Path, dataset: str, options: ServiceOptions) -> None:
    """Print the address, and answer until told to end.

    Raises:
        InputError: nothing is published, or a file, the address or the number of workers cannot be used.
    """
    if options.workers < 1:
        raise InputError(f"--workers {options.workers}: must be at least 1.")
    tls = options.certificate, options.private_key
    server.check_certificate(*tls)
    with contextlib.ExitStack() as stack:
        log = None if options.access_log is None else stack.enter_context(open_access_log(options.access_log))
        watcher = PublicationWatcher(root, dataset, wait=options.wait)
        server_socket = stack.enter_context(server.open_socket(options.host, options.port))
        scheme = "https" if options.certificate else "http"
        host = f"[{options.host}]" if ":" in options.host else options.host
        served = "nothing is published yet" if watcher.is_empty else f"publication {watcher.shop.publication}"
        address = f"{scheme}://{host}:{server_socket.getsockname()[1]}"
        print(f"{dataset}, {served}: {address}/docs; Ctrl-C ends it", flush=True)
        if options.workers > 1:
            del watcher  # each worker has its own
            server.run_workers(
                functools.partial(_start_app, root, dataset, options), server_socket, options.workers, *tls
            )
        else:
            stack.enter_context(watcher)
            app = create_app(watcher, Home(root, dataset), options.rules, log)
            server.build_server(app, *tls).run(sockets=[server_socket])


def _start_app(root: Path, dataset: str, options: ServiceOptions) -> FastAPI:
    """Load the publication in a worker, follow new ones while it lives, and create the application."""
    watcher = PublicationWatcher(root, dataset, wait=options.wait)
    watcher.start()
    log = None if options.access_log is None else open_access_log(options.access_log)
    return create_app(watcher, Home(root, dataset), options.rules, log)
