"""Who may be spoken to: whoever speaks for a scheduler can run code on its workers and its clients."""

import ipaddress
import socket

import distributed

from tasks.cluster.engine import ClusterSettings
from tasks.errors import InputError


def check(settings: ClusterSettings, tls: distributed.Security) -> None:
    """Refuse a scheduler that others could speak for: whoever does can run what it likes on this machine.

    Raises:
        InputError: its machine is another one, and the way there is not encrypted.
    """
    scheme, found, rest = settings.address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if not found or not host:
        raise InputError(f"--dask {settings.address}: write it as tcp://HOST:PORT or tls://HOST:PORT.")
    if scheme == "tls":
        if not tls.tls_client_cert:
            raise InputError(
                f"--dask {settings.address}: needs certificates; name them in Dask's configuration, such as "
                "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__TLS__CLIENT__CERT and ..__TLS__CLIENT__KEY."
            )
        return
    if not settings.unencrypted and not _is_loopback(host):
        raise InputError(
            f"--dask {settings.address}: is on another machine, and tcp is not encrypted: whoever can reach that port "
            "can run code on every worker. Use tls://, or say --dask-unencrypted where the network is your own."
        )


def _is_loopback(host: str) -> bool:
    try:
        addresses = {found[4][0] for found in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise InputError(f"--dask: the host {host} is not known ({error}).") from error
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
