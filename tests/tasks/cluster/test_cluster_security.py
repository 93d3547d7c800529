"""Other users of the machine find the ports of a run's own cluster, and can do nothing with them."""

import asyncio
import ipaddress
import os

import psutil
import pytest
from distributed import Client, Security
from distributed.comm import connect

from oneclass.tasks.cluster import ClusterSettings, open_executor
from tests.tasks.cluster import calls

pytestmark = pytest.mark.slow


def find_listeners():
    """The addresses on which this process and all that it started accept connections, by any network."""
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    open_sockets = [one for process in processes for one in process.net_connections(kind="inet")]
    return {one.laddr for one in open_sockets if one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)}


async def connect_without_certificate(address):
    await connect(address.replace("tls://", "tcp://"), timeout=2)


def test_only_the_run_itself_can_use_its_cluster(home):
    before = find_listeners()
    with open_executor(ClusterSettings(workers=1), home) as executor:
        assert executor.submit(calls.identify_worker, home, label="call").result()[0] != os.getpid()
        listeners = find_listeners() - before
        assert all(ipaddress.ip_address(address.ip).is_loopback for address in listeners)
        scheduler = executor._client.scheduler.address
        ((worker, facts),) = executor._client.scheduler_info()["workers"].items()
        addresses = {scheduler, worker, facts["nanny"]}
        assert {int(address.rpartition(":")[2]) for address in addresses} < {address.port for address in listeners}
        for security in (None, Security.temporary()):
            address = scheduler if security else scheduler.replace("tls://", "tcp://")
            with pytest.raises(OSError):
                Client(address, security=security, timeout=2, set_as_default=False)
        for address in addresses:
            with pytest.raises(OSError):
                asyncio.run(connect_without_certificate(address))
        assert executor.map(calls.double_number, [(1,), (2,)]) == [2, 4]
