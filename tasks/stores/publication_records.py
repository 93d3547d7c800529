"""The warehouse's copy of each publication's manifest, and the repair of damaged publications by it.

A manifest says what stands and by which gates the next night is judged, so its loss must not look like a home in which
nothing is published.
"""

import logging
from pathlib import Path
from typing import Any

import duckdb

from oneclass.tasks.stores import checksums, durable, publications
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import LISTS_FILE, MANIFEST_FILE

logger = logging.getLogger(__name__)


def record_current(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Record the manifest that `published` points to as the current one, and forget publications that are gone."""
    current = home.published.resolve()
    manifest = (current / MANIFEST_FILE).read_text(encoding="utf-8")
    gone = [run_id for run_id in _load_manifests(connection) if not (home.publications / run_id).is_dir()]
    connection.begin()
    for run_id in (*gone, current.name):
        forget_publication(connection, run_id)
    connection.execute("update operations.publications set is_current = false")
    connection.execute("insert into operations.publications values (?, ?, true)", [current.name, manifest])
    connection.commit()


def forget_publication(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Delete the record of a publication, before it is made anew."""
    connection.execute("delete from operations.publications where run_id = ?", [run_id])


def load_recorded_facts(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Load the facts of the publication recorded as current; empty if none is."""
    row = connection.execute("select manifest from operations.publications where is_current").fetchone()
    return checksums.parse_record(row[0], "operations.publications")[0] if row else {}


def repair_publications(connection: duckdb.DuckDBPyConnection, home: Home) -> list[str]:
    """Verify what stands, and put right what is damaged; return a sentence for each damage.

    A manifest is restored from the warehouse. If another file of the current publication is damaged, or the link is
    lost, the latest undamaged publication before it is published again. If there is none, all stays as it is: readers
    refuse it, and the gates go on by the warehouse.
    """
    if home.published.exists() and not home.published.is_symlink():
        return []  # of an earlier version of this program; the next publication sets it aside
    alarms = _restore_manifests(connection, home)
    row = connection.execute("select run_id from operations.publications where is_current").fetchone()
    recorded = row[0] if row else None
    if home.published.is_symlink():
        current = home.published.resolve()
    elif recorded is not None:
        current = home.publications / recorded
        alarms.append(f"{home.published}: the link is lost. ")
    else:
        return alarms
    if damage := _find_damage(current):
        return [*alarms, f"{damage}. {_publish_previous(connection, home, current.name)}"]
    if not home.published.is_symlink():
        publications.switch_link(home, current)
        alarms[-1] += f"It points to run {current.name} again"
    if current.name != recorded:  # published by an earlier version of this program, or a run was killed meanwhile
        record_current(connection, home)
    return alarms


def restore_lists(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Fill the tables of lists in the schema `published` from a publication, which may lack some of the files."""
    for table, file in (
        ("recommendations", publications.RECOMMENDATIONS_FILE),
        ("placements", publications.PLACEMENTS_FILE),
        ("exploration", publications.EXPLORATION_FILE),
        ("lists", LISTS_FILE),
    ):
        connection.execute(f"delete from published.{table}")
        if (folder / file).exists():
            path = publications.quote_path(folder / file)
            # the files of lists have titles too, which the tables do not
            own = "columns(lambda name: name not in ('title', 'because_titles'))"
            connection.execute(f"insert into published.{table} by name select {own} from read_parquet('{path}')")


def _restore_manifests(connection: duckdb.DuckDBPyConnection, home: Home) -> list[str]:
    alarms = []
    for run_id, manifest in _load_manifests(connection).items():
        path = home.publications / run_id / MANIFEST_FILE
        if path.parent.is_dir() and not _holds(path, manifest):
            if path.is_dir():
                checksums.remove_path(path)
            durable.write_text(home.folder / ".published-next", path, manifest)
            alarms.append(f"{path}: was damaged or missing; it is restored from the warehouse")
    return alarms


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _find_damage(publication: Path) -> str | None:
    try:
        checksums.load_checked_facts(publication, MANIFEST_FILE)
    except checksums.DamagedFile as error:
        return str(error)
    return None


def _publish_previous(connection: duckdb.DuckDBPyConnection, home: Home, damaged: str) -> str:
    """Publish the latest other publication that is undamaged; return a sentence on what is published now."""
    for facts in publications.list_publications(home):
        folder = home.publications / facts["run_id"]
        if folder.name == damaged or _find_damage(folder):
            continue
        connection.begin()
        restore_lists(connection, folder)
        connection.commit()
        publications.switch_link(home, folder)
        record_current(connection, home)
        return f"The publication of run {folder.name} is published again instead"
    return "No other publication is undamaged, so nothing is served until a run is promoted"


def _load_manifests(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return dict(connection.execute("select run_id, manifest from operations.publications").fetchall())
