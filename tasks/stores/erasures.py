"""The record of users being forgotten, and the certificates of those that were.

`forgotten/pending.json` has the ids until the lists without them are published, so that a command that was cut off can
be repeated; until then only that command works on the data set. A certificate `forgotten/<time>.json` takes its place,
without ids and without a digest of a removed text, from which a short id could be guessed.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import durable
from oneclass.tasks.stores.home import Home

FLOW = "forget"
PENDING_FILE = "pending.json"


def load_pending(home: Home) -> dict[str, Any]:
    """Load what a command that was cut off was removing, such as the events of each user; or an empty record."""
    file = home.forgotten / PENDING_FILE
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    return {"started_at": _format_now(), "users": {}, "files": {}, "left": []}


def save_pending(home: Home, pending: dict[str, Any]) -> None:
    """Store the ids that are being removed, and what is removed with them."""
    durable.make_folder(home.forgotten)
    _write(home, home.forgotten / PENDING_FILE, pending)


def require_finished(home: Home) -> None:
    """Refuse to work while users are being forgotten.

    Raises:
        InputError: a command that forgets was cut off.
    """
    if (home.forgotten / PENDING_FILE).exists():
        raise InputError(
            f"{home.folder}: a user is being forgotten, and that command was cut off or is at work. Repeat it first: "
            f"python -m flows.forget --dataset {home.dataset} --user ID, with the same IDs."
        )


def write_certificate(home: Home, run_id: str | None) -> Path:
    """Replace the ids by a certificate without them, and return it.

    Args:
        run_id: the run that published the rebuilt tables; None if nothing had been published.
    """
    pending = load_pending(home)
    facts = {"users": len(pending["users"]), "events": sum(pending["users"].values())}
    facts |= {"published_at": _format_now(), "published_by_run": run_id}
    file = home.forgotten / f"{pending['started_at'].replace(':', '')}.json"
    _write(home, file, {**pending, **facts})
    (home.forgotten / PENDING_FILE).unlink()
    durable.sync_path(home.forgotten)
    return file


def _format_now() -> str:
    """Return the time in UTC, such as 2026-11-26T12:00:00.000000Z."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _write(home: Home, file: Path, content: dict[str, Any]) -> None:
    with home.writing():
        durable.write_text(file.with_name(".partial"), file, json.dumps(content, indent=1) + "\n")
