"""Damaged publications of a home: what is restored from the warehouse, and which one is published instead."""

import pytest

from oneclass.tasks.stores import checksums, publication_records, publications, warehouse

RUNS = ("first", "second", "third")


@pytest.fixture
def published(home):
    """(home, connection): three publications of one file each, the last of which is current."""
    with warehouse.open_warehouse(home) as connection:
        for run_id in RUNS:
            folder = publications.create_publication(home, run_id)
            (folder / publications.DATABASE_FILE).write_text(f"lists of {run_id}")
            publications.activate_publication(home, folder, {"run_id": run_id, "fits": []}, keep=len(RUNS))
            publication_records.record_current(connection, home)
        yield home, connection


def damage_record(home, run_id, file=publications.DATABASE_FILE):
    path = home.publications / run_id / file
    path.chmod(0o600)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def test_nothing_is_repaired_in_a_sound_home(published):
    home, connection = published
    assert publication_records.repair_publications(connection, home) == []
    assert home.published.resolve().name == "third"


@pytest.mark.parametrize("run_id", RUNS)
def test_a_manifest_is_restored_from_the_warehouse(published, run_id):
    home, connection = published
    before = (home.publications / run_id / "manifest.json").read_bytes()
    damage_record(home, run_id, "manifest.json")
    [alarm] = publication_records.repair_publications(connection, home)
    assert run_id in alarm and "restored from the warehouse" in alarm
    assert (home.publications / run_id / "manifest.json").read_bytes() == before
    assert publication_records.repair_publications(connection, home) == []


@pytest.mark.parametrize(("damaged", "instead"), [(["third"], "second"), (["second", "third"], "first")])
def test_the_latest_undamaged_publication_is_published_again(published, damaged, instead):
    home, connection = published
    for run_id in damaged:
        damage_record(home, run_id)
    [alarm] = publication_records.repair_publications(connection, home)
    assert f"The publication of run {instead} is published again" in alarm
    assert home.published.resolve().name == instead
    checksums.load_checked_facts(home.published.resolve(), "manifest.json")
    assert publication_records.load_recorded_facts(connection)["run_id"] == instead


def test_without_an_undamaged_publication_all_stays_and_readers_refuse_it(published):
    home, connection = published
    for run_id in RUNS:
        damage_record(home, run_id)
    [alarm] = publication_records.repair_publications(connection, home)
    assert "No other publication is undamaged" in alarm and home.published.resolve().name == "third"
    with pytest.raises(checksums.DamagedFile), publications.open_published_tables(home):
        pass
