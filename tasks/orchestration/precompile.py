"""Kernels that a run's models have not been compiled for yet are compiled by another process while the run begins.

The first run after an installation, or after an edit of `models/`, compiles for minutes, one kernel at a time. The
other process takes the run's models from the last to the first, each on a tiny log; whichever of the two comes to a
kernel first compiles it, and the other reads it from numba's cache (`models.numba_cache`). What it has done is noted
there, so that the next run starts no such process.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from pydantic import BaseModel
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint, numba_cache
from oneclass.models.base import Model
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.registry import MODELS
from oneclass.tasks.stores.home import Limits

MEMORY = 2 << 30  # bytes; a run that may take less is left alone
USERS, ITEMS, HELD_OUT, FEW = 96, 40, 32, 4  # products of many rows and of few have kernels of their own


@contextlib.contextmanager
def compiling(models: Mapping[str, BaseModel], limits: Limits) -> Generator[None]:
    """Run the block while another process compiles what these models need; nothing where that was done before.

    It ends with the block, or with this process however that ends; if it fails, the run goes on.

    Args:
        models: settings by name.
    """
    missing = {name: chosen for name, chosen in models.items() if not _note(name, chosen).exists()}
    if not missing or limits.threads < 2 or limits.memory < MEMORY or not numba_cache.is_persistent():
        yield
        return
    asked = json.dumps({name: chosen.model_dump(mode="json") for name, chosen in reversed(missing.items())})
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()", asked],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},  # the same source, wherever it is
        stdin=subprocess.PIPE,  # closed when this process ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # of the run's group: Ctrl-C ends it at once, and leaves the cores to the run's own end
    reaper = threading.Thread(target=process.wait, daemon=True)  # it may be done long before the run
    reaper.start()
    try:
        yield
    finally:
        process.kill()
        reaper.join()
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """What the other process does with the models that its argument names, in their order."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    for name, given in json.loads(sys.argv[-1]).items():
        settings = MODELS[name].Settings(**given)
        with contextlib.suppress(Exception):  # the run meets it too, and tells
            compile_kernels(MODELS[name], settings)
            _note(name, settings).touch()


def _end_with_the_run() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def compile_kernels(kind: type[Model], settings: BaseModel) -> None:
    """Have a model do once all that a run asks of it, on a tiny log: its kernels are compiled and kept."""
    likes, others = _runs(0, 8), _runs(20, 2)
    model = kind(settings, seed=0, threads=1).fit(_as_stored(likes[HELD_OUT:]))
    known = slice(HELD_OUT, 2 * HELD_OUT)
    for rows, users in ((slice(HELD_OUT), None), (slice(FEW), None), (known, np.arange(HELD_OUT, dtype=np.int32))):
        for _, scores in model.iterate_scores(likes[rows], users=users):
            rank_targets(scores, likes[rows], others[rows])
        ids, _ = model.recommend(likes[rows], 5, users=users)
        model.like(likes[rows], users=users, items=ids)


def _runs(first: int, length: int) -> csr_matrix:
    """(USERS, ITEMS): of every user a run of items from another place, `length` to `length` + 4 of them."""
    rows, columns = np.indices((USERS, ITEMS))
    return csr_matrix(((columns - first - 3 * rows) % ITEMS < length + rows % 5).astype(np.float32))


def _as_stored(matrix: csr_matrix) -> csr_matrix:
    """Its arrays cannot be written to, as those of the matrix store: kernels are compiled for that too."""
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


def _note(name: str, settings: BaseModel) -> Path:
    """The file, beside numba's cache, that says that a model with these settings was compiled here."""
    made_by = (sys.version, numba.__version__, llvmlite.binding.get_host_cpu_name())
    words = json.dumps([fingerprint.fingerprint_model(MODELS[name]), settings.model_dump(mode="json"), *made_by])
    return numba_cache.root() / f"compiled-{name}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
