"""The record of users being forgotten, and the certificates of those that were.

`forgotten/pending.json` has the ids while their traces are removed, so that a command that was killed can be repeated.
A certificate `forgotten/<time>.json` takes its place, without ids: what was removed and rewritten, and when. It has no
digest of a removed text, from which a short id could be guessed. Until it says when the rebuilt tables were published,
only the command that forgets runs on the data set.
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
    """Load what a command that was cut off was removing; if there is none, the record of a new one."""
    file = home.forgotten / PENDING_FILE
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    return {"started_at": _format_now(), "users": [], "rows": {}, "files": {}, "logs_elsewhere": [], "runs": []}


def save_pending(home: Home, pending: dict[str, Any]) -> None:
    """Store the ids that are being removed, with the time and the counts of their traces."""
    durable.make_folder(home.forgotten)
    _write(home, home.forgotten / PENDING_FILE, pending)


def list_unfinished(home: Home) -> list[Path]:
    """List the certificates of users whose rows are removed, while the rebuilt tables are not published."""
    files = home.forgotten.glob("[0-9]*.json")
    return sorted(file for file in files if json.loads(file.read_text(encoding="utf-8"))["published_at"] is None)


def require_finished(home: Home) -> None:
    """Refuse to work while users are being forgotten.

    Raises:
        InputError: a command that forgets was cut off.
    """
    if (home.forgotten / PENDING_FILE).exists() or list_unfinished(home):
        raise InputError(
            f"{home.folder}: a user is being forgotten, and that command was cut off or is at work. Repeat it first: "
            f"python -m flows.forget --dataset {home.dataset} --user ID, with the same IDs."
        )


def certify_removal(home: Home, pending: dict[str, Any]) -> None:
    """Replace the ids by a certificate without them."""
    facts = {name: value for name, value in pending.items() if name != "users"}
    certificate = {
        **facts,
        "users": len(pending["users"]),
        "removed_at": _format_now(),
        "published_at": None,
        "published_by_run": None,
    }
    _write(home, home.forgotten / f"{pending['started_at'].replace(':', '')}.json", certificate)
    (home.forgotten / PENDING_FILE).unlink()
    durable.sync_path(home.forgotten)


def certify_publication(home: Home, run_id: str | None) -> list[Path]:
    """Complete the certificates once no earlier publication is left in the home, and return them.

    Args:
        run_id: the run that published the rebuilt tables; None if nothing had been published.
    """
    unfinished = list_unfinished(home)
    for file in unfinished:
        certificate = json.loads(file.read_text(encoding="utf-8"))
        facts = {"published_at": _format_now(), "published_by_run": run_id}
        _write(home, file, {**certificate, **facts})
    return unfinished


def _format_now() -> str:
    """Return the time in UTC, such as 2026-11-26T12:00:00.000000Z."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _write(home: Home, file: Path, content: dict[str, Any]) -> None:
    with home.writing():
        durable.write_text(file.with_name(".partial"), file, json.dumps(content, indent=1) + "\n")
