"""Fit a library's model with the interpreter of another environment."""

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

LOAD = """
import sys, time
import numpy as np
from scipy.sparse import load_npz

folder, *numbers = sys.argv[1:]
matrix = load_npz(folder + "/train.npz")
"""


def fit_with_peer(python: str, script: str, train: csr_matrix, *numbers: float) -> dict[str, np.ndarray]:
    """Fit a model in another environment and return the arrays that the script saves in fit.npz.

    BLAS has one thread there, as both irspack and implicit advise.

    Args:
        python: the interpreter.
        script: runs after LOAD, so `matrix`, `folder` and `numbers` (as texts) are defined.
    """
    with tempfile.TemporaryDirectory() as folder:
        save_npz(Path(folder) / "train.npz", train)
        command = [python, "-W", "ignore", "-c", LOAD + script, folder, *map(str, numbers)]
        subprocess.run(command, check=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
        with np.load(Path(folder) / "fit.npz") as arrays:
            return dict(arrays)
