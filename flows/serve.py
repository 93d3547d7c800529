"""Serve the current publication over HTTP on this machine, reloading each new one."""

from dataclasses import dataclass, field

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import Count, DatasetParameters
from oneclass.tasks.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ServeParameters(DatasetParameters):
    """Parameters of `flows.serve`.

    Attributes:
        host: the address to listen on; one that other machines reach needs --api-key-file
        port: 0 for any free port
        host_names: further names under which clients ask, such as recommendations.shop.example
        api_key_file: SHA-256 hashes of keys, one per line; requests must send one as `Authorization: Bearer KEY`
        workers: processes that answer on the port
        access_log: append a JSON line per request, without its query, to this file; - for standard output
    """

    host: str = "127.0.0.1"
    port: int = 8765
    host_names: list[str] = field(default_factory=list[str])
    api_key_file: str | None = None
    workers: Count = 1
    access_log: str | None = None


def serve(given: ServeParameters) -> str:
    """Recommendations over HTTP, by default on the loopback; /docs lists the addresses."""
    from oneclass.tasks.serve import access, server

    if given.host not in access.LOOPBACK and given.api_key_file is None:
        raise InputError(f"--host {given.host}: other machines reach it, so it needs --api-key-file FILE.")
    rules = access.AccessRules(
        frozenset({*access.LOOPBACK, *(name.lower() for name in (given.host, *given.host_names))}),
        access.load_key_hashes(given.api_key_file) if given.api_key_file else (),
    )
    home, dataset = given.find_home()
    host, port, log = given.host, given.port, given.access_log
    server.run_service(home.root, dataset.name, rules, host=host, port=port, workers=given.workers, access_log=log)
    return "Ended."


if __name__ == "__main__":
    run_as_program("serve")
