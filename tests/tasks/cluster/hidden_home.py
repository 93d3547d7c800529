"""Loaded by a Dask worker (`--preload`): everything below $HIDDEN is as good as not there for it, and what it tries is
noted.

It stands for a machine of its own: Python tells of each file and folder that is opened, made, moved or listed.
"""

import os
import sys

HIDDEN = os.environ["HIDDEN"]
FILE_EVENTS = ("open", "os.", "shutil.", "glob.", "pathlib.")


def _hide_home(event: str, arguments: tuple) -> None:
    if not event.startswith(FILE_EVENTS):
        return
    for one in arguments:
        if isinstance(one, (str, os.PathLike)) and os.path.abspath(one).startswith(f"{HIDDEN}/"):
            with open(f"{HIDDEN}.tried", "a") as noted:
                noted.write(f"{event} {one}\n")
            raise FileNotFoundError(f"{one}: is on another machine")


sys.addaudithook(_hide_home)
