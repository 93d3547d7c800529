"""The console script `oneclass`: `oneclass backfill --dataset demo` is `python -m flows.backfill --dataset demo`.

It uses the installed package, whatever the current folder contains.
"""

import importlib
import os
import sys
from importlib.metadata import version
from typing import NoReturn

from oneclass.flows import cli

COMMANDS = {
    "backfill": "from raw logs to published tables",
    "recommend": "recommendations for a user or a history",
    "serve": "recommendations over HTTP on this machine",
    "explain": "a user's history and recommendations, with reasons",
    "promote": "show the publications, publish another model, or roll back",
    "tune": "search a model's settings",
    "sweep": "refit models for the report's figures that vary a setting",
    "nightly_retrain": "the nightly run, once",
    "deploy": "the nightly run of a data set on the Prefect server",
    "data_docs": "Great Expectations' Data Docs of the contracts",
}


def main() -> NoReturn:
    """Run the command named by the first argument."""
    # A command starts its server as a process with `-m`, which would import packages from the current folder.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    if name in COMMANDS:
        sys.argv = [f"oneclass {name}", *sys.argv[2:]]
        cli.run_main(importlib.import_module(f"oneclass.flows.{name}").main)
    if name in ("__version", "version"):
        print(f"oneclass {version('oneclass')}")
        raise SystemExit(0)
    helped = name in ("__help", "_h", "help")
    print(_usage(), file=sys.stdout if helped else sys.stderr)
    raise SystemExit(0 if helped else 2)


def _usage() -> str:
    lines = [f"  {name:17} {what}" for name, what in COMMANDS.items()]
    return "\n".join(["usage: oneclass COMMAND ...", "", *lines, "", "oneclass COMMAND --help says more."])
