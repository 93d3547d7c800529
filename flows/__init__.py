"""The flows and commands: which stages run, in which order, with which settings.

Prefect's defaults are set here, before anything imports it: quiet, offline, and patient on a busy machine. Values that
the user has set are kept.
"""

import logging
import os

PREFECT_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # the default of 20 s is too short on a busy machine
    "PREFECT_LOGGING_EXTRA_LOGGERS": "oneclass",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # a stage may be called outside of a flow
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
}

for _name, _value in PREFECT_DEFAULTS.items():
    os.environ.setdefault(_name, _value)
logging.getLogger("oneclass").setLevel(logging.INFO)
