"""Users are removed from warehouse and landing folder, whatever a file's form, and whenever the command is killed."""

import gzip
import io
import json
import shutil
import tarfile

import duckdb
import numpy as np
import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget import tables
from oneclass.tasks.forget.rewrite import copy_without_lines
from oneclass.tasks.forget.stage import remove_users
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import erasures, runs, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.killed_process import ends_before_change

GONE = "gone-7d1e"
SHOP = Dataset(name="small", title="small", files=("*.csv", "*.txt", "*.tar", "*.parquet"))


def load_events(home: Home) -> list[tuple]:
    return query_rows(home, "select user_id, item_id from raw.events order by all")


def make_csv(*lines: str) -> bytes:
    return "\n".join(["user_id,item_id", *lines, ""]).encode()


def read_anew(home: Home, dataset: Dataset = SHOP) -> None:
    """Run the next night's ingest; it must find every file known."""
    before = load_events(home)
    result = ingest(home, dataset, [], "next")
    assert (result.new, result.changed, result.set_aside) == ((), (), ())
    assert load_events(home) == before


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "end"])
def test_lines_are_left_out_wherever_chunks_end(end, last, monkeypatch):
    lines = [f"{'x' * (number % 7)}{number}" for number in range(40)]
    text = "".join(line + end for line in lines) + last
    every = [*lines, *([last] if last else [])]
    for size in (1, 2, 5, 64, 10_000):
        monkeypatch.setattr("oneclass.tasks.forget.rewrite.CHUNK_BYTES", size)
        generator = np.random.default_rng(size)
        gone = np.flatnonzero(generator.random(len(every)) < 0.4) + 1
        copy_without_lines(io.BytesIO(text.encode()), target := io.BytesIO(), gone)
        kept = [line for number, line in enumerate(every, 1) if number not in gone]
        expected = end.join(kept) + ("" if last and len(every) not in gone else end if kept else "")
        assert target.getvalue().decode() == expected


def make_home(home: Home) -> None:
    (home.landing / "quarantine").mkdir(parents=True)
    (home.landing / "a.csv").write_bytes(make_csv("a,x", f"{GONE},x", "b,y"))
    (home.landing / "b.csv").write_bytes(gzip.compress(make_csv(f"{GONE},y", "c,x"), mtime=0))
    ingest(home, SHOP, [], "first")
    (home.landing / "new.csv").write_bytes(make_csv("d,x", f"{GONE},z"))
    (home.root / "only.csv").write_bytes(make_csv(f"{GONE},z"))
    (home.landing / "only.csv").symlink_to("../../only.csv")
    (home.landing / "quarantine" / "bad.csv").write_text(f"a;b\n{GONE};2\n1;2\n")
    (home.matrices / "0123").mkdir(parents=True)
    (home.report / "users").mkdir(parents=True)
    (home.report / "users" / f"{GONE}.html").touch()


def read_contents(home: Home) -> dict[str, bytes]:
    files = (path for path in home.folder.rglob("*") if path.is_file())
    kept = {str(path.relative_to(home.folder)): path.read_bytes() for path in files if path != home.warehouse}
    return {name: content for name, content in kept.items() if not name.startswith(("forgotten/", ".lock", "spill/"))}


@pytest.mark.slow
def test_a_command_that_is_killed_before_any_change_of_files_is_finished_by_the_next(home, tmp_path):
    make_home(home)
    original = Home(tmp_path / "original", "small", home.limits)
    shutil.copytree(home.root, original.root)
    remove_users(home, SHOP, [GONE])
    expected, registry = (
        read_contents(home),
        "select path, sha256, bytes, events from operations.log_files order by file_id",
    )
    [certificate] = home.forgotten.iterdir()
    facts = json.loads(certificate.read_text())
    assert expected.keys() == {f"landing/{name}" for name in ("a.csv", "b.csv", "new.csv", "quarantine/bad.csv")}
    assert facts["logs_elsewhere"] == [str((home.root / "only.csv").resolve())]
    assert GONE.encode() not in b"".join([*expected.values(), gzip.decompress(expected["landing/b.csv"])])
    number, whole, refused = 0, False, 0
    while not whole:
        number += 1
        shutil.rmtree(home.root)
        shutil.copytree(original.root, home.root)
        whole = ends_before_change(number, lambda: remove_users(home, SHOP, [GONE]))
        if whole:
            break
        try:
            erasures.require_finished(home)
        except InputError:
            refused += 1
            with (
                pytest.raises(InputError, match="a user is being forgotten"),
                runs.record_run(home, "r", "backfill", {}),
            ):
                pass
        else:
            assert query_rows(home, f"select count(*) from raw.events where user_id = '{GONE}'") == [(2,)]
        # The certificate may be there already: then no user is known, and there is nothing left to remove.
        assert ends_before_change(10**6, lambda: remove_users(home, SHOP, [GONE]))
        assert read_contents(home) == expected
        assert GONE.encode() not in home.warehouse.read_bytes()
        [certificate] = home.forgotten.iterdir()
        again = json.loads(certificate.read_text())
        for name in ("rows", "users"):
            assert again[name] == facts[name]
        assert {file["name"]: file["sha256"] for file in again["files"]} == {
            file["name"]: file["sha256"] for file in facts["files"]
        }
    assert number > 20 and refused > 10
    with pytest.raises(InputError, match="is being forgotten"), runs.record_run(home, "run", "backfill", {}):
        pass
    erasures.certify_publication(home, None)
    assert len(query_rows(home, registry)) == 2
    before = load_events(home)
    assert ingest(home, SHOP, [], "next").new == (str(home.landing / "new.csv"),)
    assert load_events(home) == sorted([*before, ("d", "x")])


def test_the_lines_of_an_archive_and_of_a_numbered_list_go_and_no_user_is_renumbered(home):
    home.landing.mkdir(parents=True)
    with tarfile.open(home.landing / "logs.tar", "w") as archive:
        logs = (
            ("mv_1.txt", "1:\n8,1,2005-01-01\n7,1,2005-01-02\n"),  # replaced by the later member of its name
            ("mv_1.txt", "1:\n7,5,2005-01-01\n8,4,2005-01-02\n"),
            ("mv_2.txt", "2:\n7,5,2005-01-01\n"),
        )
        for name, text in logs:
            member = tarfile.TarInfo(f"in/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        probe = tarfile.TarInfo("probe.txt")  # which is no log, and has users
        probe.size = 4
        archive.addfile(probe, io.BytesIO(b"1:\n7"))
    ingest(home, SHOP, [], "first")
    remove_users(home, SHOP, ["7"])
    erasures.certify_publication(home, None)
    assert load_events(home) == [("8", "1")]
    with tarfile.open(home.landing / "logs.tar") as archive:
        assert archive.getnames() == ["in/mv_1.txt", "in/mv_2.txt"]
        assert archive.extractfile("in/mv_1.txt").read() == b"1:\n8,4,2005-01-02\n"
    read_anew(home)

    numbered = Home(home.root, "numbered", home.limits)
    numbered.landing.mkdir(parents=True)
    (numbered.landing / "users.txt").write_text("2 4 5\n1 6\n3 4 5 6\n")
    dataset = Dataset(name="numbered", title="numbered", files=("*.txt",), layout="counted_adjacency")
    ingest(numbered, dataset, [], "first")
    remove_users(numbered, dataset, ["2"])
    erasures.certify_publication(numbered, None)
    assert (numbered.landing / "users.txt").read_text() == "2 4 5\n0\n3 4 5 6\n"
    anew = Home(home.root / "anew", "numbered", home.limits)
    shutil.copytree(numbered.landing, anew.landing)
    ingest(anew, dataset, [], "first")
    assert load_events(numbered) == load_events(anew) == [("1", "4"), ("1", "5"), ("3", "4"), ("3", "5"), ("3", "6")]


def test_what_was_taken_from_a_database_goes_too(home):
    home.landing.mkdir(parents=True)
    taken = home.landing / ".source-taken-000001.parquet"
    cells = "map(['user_id', 'note'], [id, '9']) as cells from (values (1, 'a'), (2, '9')) as rows(mark, id)"
    form = "(format parquet, kv_metadata {boundary: '2'})"
    with duckdb.connect() as connection:
        connection.execute(f"copy (select mark, {cells}) to '{taken}' {form}")
    (home.landing / "a.csv").write_bytes(make_csv("a,x", "9,x", "b,9"))
    ingest(home, SHOP, [], "first")
    remove_users(home, SHOP, ["9"])
    erasures.certify_publication(home, None)
    with duckdb.connect() as connection:
        assert connection.execute(f"select mark, cells['user_id'] from '{taken}'").fetchall() == [(1, "a")]
        query = f"select decode(key), decode(value) from parquet_kv_metadata('{taken}')"
        facts = dict(connection.execute(query).fetchall())
    assert facts["boundary"] == "2"
    assert load_events(home) == [("a", "x"), ("b", "9")]  # an item of the same name stays
    read_anew(home)


def test_an_unknown_user_changes_nothing(home):
    make_home(home)
    before = read_contents(home)
    with pytest.raises(InputError, match="--user nobody: no log of small has such a user") as refused:
        remove_users(home, SHOP, ["nobody", GONE])
    assert refused.value.exit_status == 2
    assert read_contents(home) == before and not home.forgotten.exists()


def test_a_warehouse_with_tables_of_somebody_else_is_refused(home):
    make_home(home)
    with warehouse.open_warehouse(home) as connection:
        connection.execute(f"create table operations.mine as select '{GONE}' as customer")
    before = read_contents(home)
    with pytest.raises(InputError, match="not this program's: operations.mine"):
        remove_users(home, SHOP, [GONE])
    assert read_contents(home) == before and not home.forgotten.exists()


def test_every_table_with_users_is_covered(home):
    """A table with users' ids or indices is filtered by its ids, emptied, or has a statement of its own."""
    with warehouse.open_warehouse(home) as connection:
        columns = connection.execute(
            "select schema_name || '.' || table_name, list(column_name) from duckdb_columns() "
            "semi join duckdb_tables() using (schema_name, table_name) group by all"
        ).fetchall()
    with_users = {name for name, names in columns if {"user_id", "user_index"} & {*names}}
    assert {name for name in with_users if not name.startswith(tables.EMPTIED)} == {"raw.events"}
    free_text = {name for name, names in columns if {"line", "reason", "samples", "key"} & {*names}}
    assert free_text - {*tables.COPIES} == {"operations.promotions", "operations.funnel", "operations.model_settings"}
