"""Users are removed from warehouse and landing folder, whatever a file's form, and whenever the command is killed."""

import gzip
import io
import json
import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import duckdb
import polars as pl
import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget import stage
from oneclass.tasks.forget.stage import certify_removal, remove_users
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import execute_statement, query_rows
from tests.processes import ends_before_change
from tests.tasks.ingest.conftest import list_set_aside

GONE = "gone-7d1e"
FILES = ("*.csv", "*.txt", "*.tar", "*.parquet", "*.jsonl", "*.json")
SHOP = Dataset(name="small", title="small", files=FILES, max_reject_share=0.5)
EVENTS = """select file_id, user_id, item_id, value, occurred_at, event from raw.events
    order by file_id, line_number, item_id"""


def forget(home: Home, *users: str, dataset: Dataset = SHOP) -> dict:
    """Forget users in a home in which nothing is published; returns the certificate."""
    remove_users(home, dataset, users)
    return json.loads(certify_removal(home, None).read_text())


def make_csv(*lines: str) -> bytes:
    return "\n".join(["user_id,item_id", *lines, ""]).encode()


def read_bytes(home: Home) -> dict[str, bytes]:
    """The bytes of a home's files, unpacked, but for locks."""
    files = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file() and path.name != ".lock"}
    unpacked = {}
    for path, content in files.items():
        unpacked[str(path.relative_to(home.root))] = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        if content[:4] == b"PAR1":
            unpacked[f"{path.name} rows"] = repr(pl.read_parquet(path).rows()).encode()
    return unpacked


def check_next_night(home: Home, tmp_path: Path) -> None:
    """Check that the next run finds every file known, and that a home made anew from the files has the same events."""
    before = query_rows(home, EVENTS)
    assert {one.outcome for one in ingest(home, SHOP, [], "next")} <= {"skipped"}
    assert list_set_aside(home, "next") == []
    assert query_rows(home, EVENTS) == before
    anew = Home(tmp_path / "anew", home.dataset, home.limits)
    shutil.rmtree(anew.root, ignore_errors=True)
    shutil.copytree(home.landing, anew.landing)
    if any(anew.landing.iterdir()):
        ingest(anew, SHOP, [], "first")
        assert [row[1:] for row in query_rows(anew, EVENTS)] == [row[1:] for row in before]


def write_log(path: Path, rows: list[tuple[str, str, int]], form: str, generator: random.Random) -> None:
    """Write events as a log; a line in five of a text is followed by one that cannot be read, of the same user."""
    names = ["user_id", "item_id", "rating"]
    if form == "parquet":
        pl.DataFrame(rows, names, orient="row").write_parquet(path, row_group_size=7)
        return
    lines = [] if form == "jsonl" else [",".join(names)]
    for row in rows:
        as_json = json.dumps(dict(zip(names, row, strict=True)))
        lines.append(as_json if form == "jsonl" else ",".join(map(str, row)))
        if generator.random() < 0.05:
            lines.append(f"{row[0]};damaged")
    text = (generator.choice(["\n", "\r\n"]).join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if form == "csv.gz" else text)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_random_people_are_forgotten_one_after_another(home, tmp_path, seed):
    """Their own events go and no other, whatever the forms, also where a command is killed and repeated."""
    generator = random.Random(seed)
    people = [f"person-{number:02}x" for number in range(8)]
    home.landing.mkdir(parents=True)
    for number, form in enumerate(generator.sample(["csv", "csv.gz", "parquet", "jsonl", "csv", "csv.gz"], 4)):
        rows = [
            (generator.choice(people), f"item-{generator.randrange(9)}", generator.randint(1, 5)) for _ in range(60)
        ]
        write_log(home.landing / f"{number}.{form}", rows, form, generator)
    ingest(home, SHOP, [], "first")
    for person in generator.sample(people, 3):
        others = [row for row in query_rows(home, EVENTS) if row[1] != person]
        if generator.random() < 0.7:
            ends_before_change(generator.randint(1, 60), lambda person=person: forget(home, person))
        if person.encode() in b"".join(read_bytes(home).values()):
            forget(home, person)
        assert query_rows(home, EVENTS) == others
        assert [name for name, content in read_bytes(home).items() if person.encode() in content] == []
        check_next_night(home, tmp_path)


def make_home(home: Home) -> None:
    (home.landing / "quarantine").mkdir(parents=True)
    (home.landing / "a.csv").write_bytes(make_csv("a,x", f"{GONE},x", "b,y"))
    (home.landing / "b.csv").write_bytes(gzip.compress(make_csv(f"{GONE},y", "c,x"), mtime=0))
    (home.landing / "c.csv").write_bytes(make_csv("c,x", f"{GONE},y"))  # equal to b.csv without the user
    (home.landing / "d.csv").write_bytes(make_csv(f"{GONE},z"))
    ingest(home, SHOP, [], "first")
    (home.landing / "new.csv").write_bytes(make_csv("d,x", f"{GONE},z"))
    (home.landing / "quarantine" / "bad.csv").write_text(f"a;b\n{GONE};2\n1;2\n{GONE}x;1\n")
    (home.landing / "quarantine" / "bad.csv.why.txt").write_text(f"{GONE};2: 2 fields\n")
    (home.matrices / "0123").mkdir(parents=True)
    (home.report / "users").mkdir(parents=True)
    (home.report / "users" / f"{GONE}.html").touch()


def read_landing(home: Home) -> dict[str, bytes]:
    return {
        str(path.relative_to(home.landing)): path.read_bytes() for path in home.landing.rglob("*") if path.is_file()
    }


@pytest.mark.slow
def test_a_command_that_is_killed_before_any_change_of_files_is_finished_by_the_next(home, tmp_path):
    make_home(home)
    original = Home(tmp_path / "original", "small", home.limits)
    shutil.copytree(home.root, original.root)
    facts, expected, events = forget(home, GONE), read_landing(home), query_rows(home, EVENTS)
    assert expected == {
        "a.csv": make_csv("a,x", "b,y"),
        "b.csv": expected["b.csv"],
        "c.csv": make_csv("c,x"),
        "new.csv": make_csv("d,x"),
        "quarantine/bad.csv": f"a;b\n1;2\n{GONE}x;1\n".encode(),
    }
    assert [row[1:3] for row in events] == [("a", "x"), ("b", "y"), ("c", "x")]
    number, whole, refused = 0, False, 0
    while not whole:
        number += 1
        shutil.rmtree(home.root)
        shutil.copytree(original.root, home.root)
        whole = ends_before_change(number, lambda: forget(home, GONE))
        if not whole and (home.forgotten / "pending.json").exists():
            refused += 1
            with pytest.raises(InputError, match="being forgotten"), runs.record_run(home, "r", "backfill", {}):
                pass
        if not [*home.forgotten.glob("[0-9]*.json")] or (home.forgotten / "pending.json").exists():
            forget(home, GONE)
        assert read_landing(home) == expected and query_rows(home, EVENTS) == events
        assert GONE.encode() not in home.warehouse.read_bytes()
        [certificate] = home.forgotten.iterdir()
        again = json.loads(certificate.read_text())
        assert all(again[name] == facts[name] for name in ("events", "users", "files", "left"))
    assert number > 20 and refused > 10


def test_files_without_lines_are_left_to_a_person_who_is_told(home):
    home.landing.mkdir(parents=True)
    with tarfile.open(home.landing / "logs.tar", "w") as archive:
        member = tarfile.TarInfo("mv_1.txt")
        member.size = len(text := b"1:\n8,1,2005-01-01\n7,1,2005-01-02\n")
        archive.addfile(member, io.BytesIO(text))
    (home.landing / "a.json").write_text(json.dumps([{"user_id": user, "item_id": "7"} for user in ("7", "8")]))
    with zipfile.ZipFile(home.landing / "b.csv.zip", "w") as archive:
        archive.writestr("b.csv", make_csv("7,1", "8,1"))
    (home.root / "only.csv").write_bytes(make_csv("7,5"))
    (home.landing / "only.csv").symlink_to("../../only.csv")
    (home.landing / "plain.csv").write_bytes(make_csv("7,5", "8,7"))
    (home.landing / "mv_2.txt").write_text("7:\n7,1,2005-01-02\n8,1,2005-01-02\n")
    ingest(home, SHOP, [], "first")
    (home.landing / "cut.csv.gz").write_bytes(gzip.compress(make_csv("8,1"))[:-9])  # which cannot be searched
    taken = home.landing / ".source-taken-000001.parquet"  # of an earlier version, from a database
    cells = "map(['user_id'], [id]) as cells from (values (1, '8'), (2, '7')) as rows(mark, id)"
    with duckdb.connect() as connection:
        connection.execute(f"copy (select mark, {cells}) to '{taken}' (format parquet)")
        before = read_landing(home)
        facts = forget(home, "7")
        assert connection.execute(f"select mark, cells['user_id'] from '{taken}'").fetchall() == [(1, "8")]
    assert {Path(path).name for path in facts["left"]} == {"logs.tar", "a.json", "b.csv.zip", "only.csv", "cut.csv.gz"}
    assert facts["files"] == {"landing/plain.csv": 1, "landing/mv_2.txt": 1, f"landing/{taken.name}": 1}
    assert {row[1] for row in query_rows(home, EVENTS)} == {"8"}
    after = {"plain.csv": make_csv("8,7"), "mv_2.txt": b"7:\n8,1,2005-01-02\n"}  # an item of the same name stays
    assert read_landing(home) == before | after | {taken.name: taken.read_bytes()}


def test_no_user_of_a_list_whose_lines_are_numbered_is_renumbered(home):
    home.landing.mkdir(parents=True)
    (home.landing / "users.txt").write_text("2 4 5\n1 6\n3 4 5 6\n")
    dataset = Dataset(name="numbered", title="numbered", files=("*.txt",), layout="counted_adjacency")
    ingest(home, dataset, [], "first")
    facts = forget(home, "2", dataset=dataset)
    assert facts["left"] == [str(home.landing.resolve() / "users.txt")]
    assert [row[1] + row[2] for row in query_rows(home, EVENTS)] == ["14", "15", "34", "35", "36"]


def test_an_unknown_user_or_a_table_of_somebody_else_is_refused_and_changes_nothing(home):
    make_home(home)
    before = read_landing(home)
    with pytest.raises(InputError, match="--user nobody: no log of small has such a user"):
        remove_users(home, SHOP, ["nobody", GONE])
    execute_statement(home, f"create table operations.mine as select '{GONE}' as customer")
    with pytest.raises(InputError, match="not this program's: operations.mine"):
        remove_users(home, SHOP, [GONE])
    assert read_landing(home) == before and not home.forgotten.exists()
    assert (GONE,) in query_rows(home, "select user_id from raw.events")


def test_every_table_with_users_is_covered(home):
    """A table with users' ids or indices is filtered by its ids, emptied, or has a statement of its own."""
    with warehouse.open_warehouse(home) as connection:
        columns = connection.execute(
            "select schema_name || '.' || table_name, list(column_name) from duckdb_columns() "
            "semi join duckdb_tables() using (schema_name, table_name) group by all"
        ).fetchall()
    with_users = {name for name, names in columns if {"user_id", "user_index"} & {*names}}
    assert {name for name in with_users if not name.startswith(stage.EMPTIED)} == {"raw.events"}
    free_text = {name for _, names in columns for name in names} & {"line", "reason", "samples", "observed", "alarm"}
    assert free_text == stage.FREE_TEXT.keys()
