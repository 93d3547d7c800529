"""Which stages run, in which order, with which settings.

Prefect is set up here, before anything imports it: quiet, offline, and patient on a busy machine. A value
that the user has set is left alone.
"""

import atexit
import logging
import os
import sys

PREFECT_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # the 20 s of the default fail on a busy machine
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,models",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # a stage called as a plain function is no mistake
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
}

for _name, _value in PREFECT_DEFAULTS.items():
    os.environ.setdefault(_name, _value)
for _name in ("flows", "tasks", "models"):
    logging.getLogger(_name).setLevel(logging.INFO)


def _hush() -> None:
    """Nothing more on stderr, now that all is said.

    DuckDB's binding prints a page of "leaked" lines when the interpreter ends while some library still refers to
    its module; they are of no consequence, and no reader could act on them.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_hush)  # what is registered first runs last, and a command imports this before Prefect
