"""The Dask cluster of a run: one of the run's own on this machine, or one that is there, once all its workers agree."""

import contextlib
import logging
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import distributed

from tasks.cluster import security, worker
from tasks.cluster.dask_engine import MEMORY, DaskEngine
from tasks.cluster.engine import ClusterSettings
from tasks.errors import InputError
from tasks.orchestration import artifacts
from tasks.stores import allowance, run_at_url
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

SECONDS_TO_ANSWER = 30.0  # that a scheduler, and then its first worker, is waited for
SHARE = 0.8  # of the machine's memory that a run's own workers declare together
# A signal to the run's process group is for the run: Dask would start workers anew that it ends.
OF_ITS_OWN = "import os; os.setpgid(0, 0)"
CLEARED_UP = "ignore:resource_tracker"
DASHBOARD = "127.0.0.1:8787"


@contextlib.contextmanager
def opened(settings: ClusterSettings, home: Home, run_id: str | None) -> Iterator[DaskEngine]:
    """The engine of a run, once every worker that is there has answered.

    Raises:
        InputError: no scheduler or no worker answers, one of them is unfit, or the way to it is open to others.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with _mark(home) as mark, _client(settings, home) as client:
        artifacts.workers(home, client.dashboard_link)
        terms, most = _agreed(client, settings, home, worker.Terms(worker.version(), home.absolute(), mark, 1, run_id))
        for name in worker.SPOKEN:
            client.forward_logging(name, logging.INFO)
        yield DaskEngine(client, terms, most)


@contextlib.contextmanager
def _mark(home: Home) -> Iterator[str]:
    """The name of a file by which workers know the home, or its URL."""
    home.spill.mkdir(parents=True, exist_ok=True)
    mark = f"cluster-{uuid.uuid4().hex}"
    if home.store is not None:
        run_at_url.begin(home, mark)
    (home.spill / mark).touch()
    try:
        yield mark
    finally:
        (home.spill / mark).unlink(missing_ok=True)
        if home.store is not None:
            run_at_url.end(home, mark)


@contextlib.contextmanager
def _client(settings: ClusterSettings, home: Home) -> Iterator[distributed.Client]:
    tls = distributed.Security()  # certificates as Dask's own configuration names them
    if settings.address is None:
        own = {MEMORY: int(SHARE * allowance.memory() / settings.workers)}
        # of the process in which Python clears up after a run that had to end at once: its warning would be the last word
        os.environ.setdefault("PYTHONWARNINGS", CLEARED_UP)
        with (
            warnings.catch_warnings(action="ignore"),  # of a port that is taken: the page's address is said anyway
            distributed.LocalCluster(
                n_workers=settings.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=DASHBOARD,
                memory_limit=0,  # Dask would kill a worker that takes more; a fit says before what it needs
                resources=own,
                env={"NUMBA_NUM_THREADS": str(_own_threads(settings, home))},
                preload=[OF_ITS_OWN],
                local_directory=str(home.spill.absolute()),
                silence_logs=logging.CRITICAL,  # what a call raises comes with its result
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    security.check(settings, tls)
    try:
        client = distributed.Client(settings.address, security=tls, timeout=SECONDS_TO_ANSWER)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--dask {settings.address}: no scheduler answers there ({error}).") from error
    with client:
        yield client


def _own_threads(settings: ClusterSettings, home: Home) -> int:
    """Cores of each of a run's own workers."""
    return max(1, home.limits.threads // settings.workers)


def _agreed(
    client: distributed.Client, settings: ClusterSettings, home: Home, terms: worker.Terms
) -> tuple[worker.Terms, int | None]:
    """The terms, to which every worker that is there has answered, with their threads; and the most memory that one declares.

    Raises:
        InputError: naming a worker that cannot take part, and why.
    """
    where = f"--dask {settings.address}" if settings.address else f"--workers {settings.workers}"
    try:
        client.wait_for_workers(1, timeout=SECONDS_TO_ANSWER)
    except TimeoutError as error:
        raise InputError(f"{where}: the scheduler has no worker. Start some with `dask worker ADDRESS`.") from error
    workers = client.scheduler_info(n_workers=-1)["workers"]
    for address, one in workers.items():
        if one["nthreads"] != 1:
            raise InputError(
                f"{where}: worker {address} has {one['nthreads']} threads of Dask; start it with --nthreads 1. A call "
                "takes the cores by itself."
            )
    found = client.run(worker.facts, terms, on_error="return")
    for address, answer in found.items():
        if isinstance(answer, Exception):
            raise InputError(f"{where}: worker {address} cannot take part: {type(answer).__name__}: {answer}.")
        if answer[0]:
            raise InputError(f"{where}: worker {address} cannot take part: {answer[0]}.")
    on_host = Counter(one["host"] for one in workers.values())
    cores = min(answer[1] // on_host[workers[address]["host"]] for address, answer in found.items())
    threads = max(1, cores) if settings.address else _own_threads(settings, home)
    declared = [one["resources"].get(MEMORY) for one in workers.values()]
    most = None if None in declared else int(max(declared))
    memory = "" if most is None else f", up to {most / 1e9:.1f} GB each"
    logger.info(
        "%d workers with %d threads each%s; what they do: %s", len(workers), threads, memory, client.dashboard_link
    )
    return replace(terms, threads=threads), most
