"""What is current in a home, and its repair: manifests, links, damaged publications, and what a kill leaves."""

import pytest

from oneclass.tasks.stores import checksums, publications, warehouse
from tests.conftest import flip_bit, make_current, query_rows

RUNS = ("first", "second", "third")
USERS = "model/users.parquet"


def write_publication(connection, home, run_id):
    """Write a publication whose only list names its run, to the tables of the schema `published` and to its folder."""
    connection.execute("delete from published.recommendations")
    connection.execute(
        "insert into published.recommendations (user_id, item_id, rank, score) values ('u', ?, 1, 1)", [run_id]
    )
    folder = publications.create_publication(home, run_id)
    (folder / "model").mkdir()
    (folder / USERS).write_bytes(b"users")
    publications.write_tables(home, folder, [("recommendations", connection.sql("from published.recommendations"))])
    return folder


@pytest.fixture
def published(home):
    """A home with three publications, the last of which is current."""
    for run_id in RUNS:
        with warehouse.open_warehouse(home) as connection:
            folder = write_publication(connection, home, run_id)
        make_current(home, folder)
    return home


def repair(home):
    with warehouse.open_warehouse(home) as connection:
        return publications.repair_publications(connection, home)


def is_current(home, run_id):
    """Whether link, record and tables are those of a run, whose files are undamaged."""
    checksums.load_checked_facts(home.published.resolve(), "manifest.json")
    listed = query_rows(home, "select item_id from published.recommendations")
    recorded = query_rows(home, "select run_id from operations.publications where is_current")
    return (home.published.resolve().name, listed, recorded) == (run_id, [(run_id,)], [(run_id,)])


def damage(home, run_id, file=publications.DATABASE_FILE):
    flip_bit(home.publications / run_id / file)


@pytest.mark.parametrize("run_id", RUNS)
def test_a_manifest_is_restored_from_the_warehouse(published, run_id):
    before = (published.publications / run_id / "manifest.json").read_bytes()
    damage(published, run_id, "manifest.json")
    [alarm] = repair(published)
    assert run_id in alarm and "restored from the warehouse" in alarm
    assert (published.publications / run_id / "manifest.json").read_bytes() == before
    assert repair(published) == [] and is_current(published, "third")


@pytest.mark.parametrize(("damaged", "instead"), [({"third": USERS}, "second"), (dict.fromkeys(RUNS[1:], ""), "first")])
def test_the_latest_undamaged_publication_is_published_again(published, damaged, instead):
    for run_id, file in damaged.items():
        damage(published, run_id, file or publications.DATABASE_FILE)
    [alarm] = repair(published)
    assert f"The publication of run {instead} is published again" in alarm and is_current(published, instead)
    assert repair(published) == []


def test_without_an_undamaged_publication_all_stays_and_readers_refuse_it(published):
    for run_id in RUNS:
        damage(published, run_id)
    [alarm] = repair(published)
    assert "No other publication is undamaged" in alarm and published.published.resolve().name == "third"
    with pytest.raises(checksums.DamagedFile), publications.open_published_tables(published):
        pass


@pytest.mark.parametrize("linked", [None, "second"])
def test_the_link_is_set_to_what_the_warehouse_records(published, linked):
    published.published.unlink()
    if linked:
        publications.switch_link(published, published.publications / linked)
    [alarm] = repair(published)
    assert "it points to run third, which was published last" in alarm and is_current(published, "third")


def test_what_the_link_shows_is_recorded_where_the_warehouse_has_no_record(published):
    """As in a home whose warehouse was made anew from the logs."""
    with warehouse.open_warehouse(published) as connection:
        connection.execute("delete from operations.publications")
        connection.execute("delete from published.recommendations")
    assert repair(published) == [] and is_current(published, "third")
