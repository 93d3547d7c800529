"""Every format, on logs of a few lines: events with their file and line."""

import gzip
import io
import tarfile
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path

import duckdb
import numpy as np
import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.files import scan_stream
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import LogFile, SourceScanner
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import LIMITS, query_rows, real_log, write_tables

EVENTS = "select file_id, line_number, user_id, item_id, value, occurred_at from raw.events order by all"
REJECTS = "select file_id, line_number, line, reason from raw.rejects order by all"
NEW_YEAR, EPOCH = datetime(2004, 1, 1), datetime(2001, 9, 9, 1, 46, 40)
SEMICOLON = {"user": ("who",), "item": ("what",), "value": ("stars",), "time": ("day",)}

FORMATS = {
    "netflix": ("netflix", "1:\n10,4,2004-01-01\n11,3,2004-01-01\n2:\n10,5,2004-01-01\n",
                [(2, "10", "1", 4, NEW_YEAR), (3, "11", "1", 3, NEW_YEAR), (5, "10", "2", 5, NEW_YEAR)]),
    "u.data": ("ml-100k", "196\t242\t3\t1000000000\n", [(1, "196", "242", 3, EPOCH)]),
    "ratings.dat": ("ml-1m", "1::1193::5::1000000000\n", [(1, "1", "1193", 5, EPOCH)]),
    "ratings.csv": ("ml-20m", "userId,movieId,rating,timestamp\n1,2,3.5,1000000000\n",
                    [(2, "1", "2", 3.5, EPOCH)]),
    "ml-1m csv": ("ml-1m", "user_id,item_id,rating\n1,1193,5\n", [(2, "1", "1193", 5, None)]),
    "other order": ("ml-1m", "rating,x,movieId,userId\n5,-,1193,1\n", [(2, "1", "1193", 5, None)]),
    "quoted": ("ml-1m", 'user_id,item_id,rating\n"a, b","c ""d""",5\n', [(2, "a, b", 'c "d"', 5, None)]),
    "triplets": ("msd", 'b"8\tSOAKI\t1\nb9\tSOBBM\t7\n',
                 [(1, 'b"8', "SOAKI", 1, None), (2, "b9", "SOBBM", 7, None)]),
    "user_artists.dat": ("lastfm", "userID\tartistID\tweight\n2\t51\t13883\n", [(2, "2", "51", 13883, None)]),
    "adjacency": ("gowalla", "0 7 8 \n1\n2  9\n",
                  [(1, "0", "7", 1, None), (1, "0", "8", 1, None), (3, "2", "9", 1, None)]),
    "amazon-book": ("amazon-book", "0 3 1\n1 \n", [(1, "0", "1", 1, None), (1, "0", "3", 1, None)]),
    "counted": ("citeulike-a", "2 7 8\n0\n1 9\n",
                [(1, "1", "7", 1, None), (1, "1", "8", 1, None), (3, "3", "9", 1, None)]),
    "own csv": (Dataset(name="own", title="own", columns=SEMICOLON), "day;who;what;stars\n2004-01-01;é;b;2\n",
                [(2, "é", "b", 2, NEW_YEAR)]),
    "no values": (Dataset(name="own", title="own", columns={"value": ()}), "item\tuser\nb\ta\n",
                  [(2, "a", "b", 1, None)]),
    "no header": (Dataset(name="own", title="own", delimiter="|", fields=("item", "-", "user")), "b|5|a\n",
                  [(1, "a", "b", 1, None)]),
}  # fmt: skip


def dataset_of(name: str | Dataset, folder: Path) -> Dataset:
    return datasets.load_dataset(name, folder) if isinstance(name, str) else name


@pytest.fixture
def read(home: Home, tmp_path: Path) -> Callable[..., tuple[list, list]]:
    """Events and rejects of log files; the stage's transaction and contracts have their own tests."""

    def _read(dataset: str | Dataset, paths: Sequence[Path]) -> tuple[list, list]:
        of = dataset_of(dataset, tmp_path)
        return ingest_logs(home, SourceScanner(of).scan(paths), tmp_path, of)

    return _read


def ingest_logs(home: Home, logs: Sequence[LogFile], folder: Path, dataset: Dataset) -> tuple[list, list]:
    (scratch := folder / "scratch").mkdir(exist_ok=True)
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        load_logs(connection, list(enumerate(logs, 1)), scratch, dataset)
        connection.commit()
        assert not list(scratch.iterdir())
        return connection.execute(EVENTS).fetchall(), connection.execute(REJECTS).fetchall()


def write_file(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pack_members(members: dict[str, bytes], mode: str = "w") -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:
        for name, content in members.items():
            (member := tarfile.TarInfo(name)).size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


@pytest.mark.parametrize("name", FORMATS)
def test_each_format(read, tmp_path, name):
    dataset, text, expected = FORMATS[name]
    events, rejects = read(dataset, [write_file(tmp_path / "log", text)])
    assert events == [(1, *event) for event in expected]
    assert rejects == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r\n").removesuffix("\r\n"),
        lambda text: text.replace("\n", "\r\n", 1),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text + "\n \n",
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text[:9].encode()) + gzip.compress(text[9:].encode()),
    ],
    ids=[
        "no end",
        "crlf",
        "crlf no end",
        "mixed ends",
        "cr",
        "bom",
        "blank lines",
        "gzip",
        "gzip in two members",
    ],
)
@pytest.mark.parametrize("name", ["netflix", "ratings.csv", "counted"])
def test_line_ends_byte_order_mark_and_gzip_change_nothing(read, tmp_path, name, change):
    dataset, text, expected = FORMATS[name]
    events, rejects = read(dataset, [write_file(tmp_path / "log", change(text))])
    assert events == [(1, *event) for event in expected]
    assert rejects == []


def test_a_line_longer_than_duckdbs_own_limit(read, tmp_path):
    items = [str(item) for item in range(400_000)]
    events, rejects = read("gowalla", [write_file(tmp_path / "train.txt", f"7 {' '.join(items)}\n8 1\n")])
    assert len(" ".join(items)) > 2_000_000 and rejects == []
    assert [event[3] for event in events[:-1]] == sorted(items) and events[-1][:4] == (1, 2, "8", "1")


def test_parquet(read, tmp_path):
    path = tmp_path / "log.parquet"
    duckdb.execute(
        "copy (from (values"
        " (1, 'x', 5, timestamp '2004-01-01'), (null, 'y', 4, null), (3, 'z', 2, timestamp '2004-01-01'))"
        f" t(user_id, item_id, rating, timestamp)) to '{path}'"
    )
    events, rejects = read("ml-1m", [path])
    assert events == [(1, 1, "1", "x", 5, NEW_YEAR), (1, 3, "3", "z", 2, NEW_YEAR)]
    assert [(line, reason) for _, line, _, reason in rejects] == [(2, "names no user")]


FILMS = {f"training_set/mv_000000{film}.txt": f"{film}:\n10,{film},2004-01-01\n".encode() for film in (1, 2, 3)}
FILM_EVENTS = [(film, 2, "10", str(film), film, NEW_YEAR) for film in (1, 2, 3)]


@pytest.mark.parametrize(
    "archive",
    [
        pack_members(FILMS),
        pack_members(FILMS, "w:gz"),
        pack_members({"download/README": b"read me", "download/training_set.tar": pack_members(FILMS)}, "w:gz"),
        pack_members(FILMS | {"training_set/mv_0000002.txt": b"2:\r\n10,2,2004-01-01\n"}),
    ],
    ids=["tar", "tar.gz", "nested", "mixed ends inside"],
)
def test_films_in_an_archive_are_files_of_their_own(read, tmp_path, archive):
    events, rejects = read("netflix", [write_file(tmp_path / "nf_prize_dataset.tar.gz", archive)])
    assert (events, rejects) == (FILM_EVENTS, [])


def test_a_folder_a_pattern_and_files_by_name_are_the_same(read, tmp_path):
    paths = [write_file(tmp_path / name, content) for name, content in FILMS.items()]
    write_file(tmp_path / "training_set" / "notes.md", "not a log")
    dataset = datasets.load_dataset("netflix", tmp_path)
    for sources in ([tmp_path / "training_set"], [tmp_path / "training_set" / "mv_*.txt"], paths):
        assert [log.path for log in SourceScanner(dataset).scan(sources)] == [str(path) for path in paths]
    assert read("netflix", [tmp_path / "training_set"]) == (FILM_EVENTS, [])


def test_a_name_with_pattern_characters_is_a_name(read, tmp_path):
    write_file(tmp_path / "ratings1.csv", "user_id,item_id,rating\nother,1,1\n")
    events, _ = read("ml-1m", [write_file(tmp_path / "ratings[1].csv", "user_id,item_id,rating\na,b,3\n")])
    assert events == [(1, 2, "a", "b", 3, None)]


def test_files_of_several_formats_at_once(read, tmp_path):
    paths = [
        write_file(tmp_path / "a.dat", FORMATS["ratings.dat"][1]),
        write_file(tmp_path / "b.csv", FORMATS["ml-1m csv"][1]),
        write_file(tmp_path / "c.csv.gz", gzip.compress(FORMATS["other order"][1].encode())),
        write_file(tmp_path / "d.dat", FORMATS["ratings.dat"][1]),
    ]
    events, _ = read("ml-1m", paths)
    assert [(file_id, line, user) for file_id, line, user, *_ in events] == [
        (1, 1, "1"),
        (2, 2, "1"),
        (3, 2, "1"),
        (4, 1, "1"),
    ]


RATING = st.tuples(st.integers(1, 99), st.integers(1, 5), st.dates(date(1999, 1, 1), date(2005, 12, 31)))
DAMAGED = st.sampled_from(
    [
        "",
        "  ",
        "17",
        "17,4",
        "17,x,2004-01-01",
        ",4,2004-01-01",
        "17,nan,2004-01-01",
        "17,4,2004-13-01",
        "x:",
        "1,2,3,4",
    ]
)
LINE = st.one_of(
    st.integers(1, 17770).map("{}:".format),
    RATING.map(lambda rating: ",".join(map(str, rating))),
    RATING.map(lambda rating: ",".join(map(str, rating))),
    DAMAGED,
)


def told_naively(files: Sequence[Sequence[str]]) -> tuple[list, list]:
    """Netflix's format line by line: the events, and where the rejects are."""
    events, rejects = [], []
    for file_id, lines in enumerate(files, 1):
        movie = None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if ":" in line:
                movie = line[:-1] if line[:-1].isdigit() else None
                rejects += [] if movie else [(file_id, number)]
                continue
            try:
                user, stars, day = line.split(",")
                events.append(
                    (file_id, number, *_check_values(user, movie), _parse_finite(stars), datetime.fromisoformat(day))
                )
            except ValueError:
                rejects.append((file_id, number))
    return sorted(events), rejects


def _check_values(*ids: str | None) -> tuple[str | None, ...]:
    if not all(ids):
        raise ValueError
    return ids


def _parse_finite(text: str) -> float:
    if text == "nan":
        raise ValueError
    return float(text)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(LINE, max_size=30), min_size=1, max_size=4))
def test_netflix_files_as_read_line_by_line(tmp_path_factory, bodies):
    folder = tmp_path_factory.mktemp("netflix")
    files = [["1:", "5,3,2004-01-01", *body, *["5,3,2004-01-01"] * len(body)] for body in bodies]
    paths = [write_file(folder / f"combined_data_{i}.txt", "\n".join(lines)) for i, lines in enumerate(files)]
    dataset = datasets.load_dataset("netflix", folder)
    write_tables(home := Home(folder, "netflix", LIMITS))
    events, rejects = ingest_logs(home, SourceScanner(dataset).scan(paths), folder, dataset)
    assert (events, [reject[:2] for reject in rejects]) == told_naively(files)


@given(st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"\r", b"\r\n", b"\0", "é".encode(), b"\xff"])).map(b"".join))
def test_survey_counts_as_python_does(content):
    found = scan_stream(io.BytesIO(content))
    text = content.decode(errors="replace")
    lines = io.StringIO(text, newline=None).readlines()
    assert found.lines == len(lines)
    assert found.max_line_bytes >= max((len(line) for line in content.split(b"\n")), default=0)
    assert found.nul_line == (content.index(b"\0") if b"\0" in content else None)
    assert found.utf8 == ("\ufffd" not in text)
    ends = {line[-2:] if line.endswith("\r\n") else line[-1:] for line in io.StringIO(text, newline="").readlines()}
    assert found.uniform_line_ends == (ends & {"\n", "\r", "\r\n"} <= {"\n"} or ends & {"\n", "\r", "\r\n"} == {"\r\n"})


PLACES = "select file_id, line_number, place, item_id from raw.places order by all"
LISTS = Dataset(name="lists", title="lists", layout="adjacency", max_reject_share=0.5)
COUNTED = Dataset(name="lists", title="lists", layout="counted_adjacency", max_reject_share=0.5)


def load_places(home):
    return query_rows(home, PLACES)


def by_hand(text, file_id=1):
    return sorted(
        (file_id, number, place, item)
        for number, line in enumerate(text.splitlines(), 1)
        for place, item in enumerate(line.split()[1:], 1)
    )


def draw_log(seed, counted=False, lines=3000):
    generator = np.random.default_rng(seed)
    for user in range(lines):
        items = generator.integers(500, size=generator.integers(0, 60))  # some of them twice
        yield " ".join(map(str, [len(items) if counted else user, *items])) + "\n"


@pytest.mark.slow
def test_places_are_those_of_the_file_and_survive_what_comes_after(home, tmp_path):
    for dataset, counted in ((LISTS, False), (COUNTED, True)):
        file = tmp_path / "log.txt"
        file.write_text("".join(draw_log(1, counted)))
        ingest(home, dataset, [file], f"run of {dataset.layout}", replace=True)
        assert load_places(home) == by_hand(file.read_text())
    before = load_places(home)
    other = tmp_path / "other.txt"
    other.write_text("".join(draw_log(2, counted=True, lines=10)))
    ingest(home, COUNTED, [other, file], "run")
    assert load_places(home) == sorted(before + by_hand(other.read_text(), 2))


@pytest.mark.slow
def test_a_line_that_cannot_be_read_has_no_places_and_a_changed_file_has_new_ones(home, tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("2 7 8\n3 9 9\n\n2 5 5\n")
    ingest(home, COUNTED, [file], "run-1")
    assert load_places(home) == [(1, 1, 1, "7"), (1, 1, 2, "8"), (1, 4, 1, "5"), (1, 4, 2, "5")]
    file.write_text("1 8\n")
    ingest(home, COUNTED, [file], "run-2")
    assert load_places(home) == [(1, 1, 1, "8")]


def test_logs_of_one_event_a_line_have_none(home, tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user_id,item_id,rating\na,x,5\n")
    ingest(home, datasets.load_dataset("ml-1m", tmp_path), [file], "run")
    assert load_places(home) == []


COUNTS = "select count(*), count(distinct user_id), count(distinct item_id), max(line_number) from raw.events"


def ingest_file(home: Home, name: str, path: Path):
    dataset = datasets.load_dataset(name, home.root)
    logs = SourceScanner(dataset).scan([path])
    with warehouse.open_warehouse(home) as connection:
        load_logs(connection, list(enumerate(logs, 1)), home.folder, dataset)
        assert connection.execute("select count(*) from raw.rejects").fetchall() == [(0,)]
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, path, counts",
    [
        ("ml-1m", "ml-1m/ratings_ge4.dat", (575_281, 6_038, 3_533, 575_281)),
        ("ml-100k", "ml-100k/u.data", (100_000, 943, 1_682, 100_000)),
        ("lastfm", "lastfm-hetrec2011/user_artists.dat", (92_834, 1_892, 17_632, 92_835)),
        ("ml-latest-small", "ml-latest-small/ratings.csv", (100_004, 671, 9_066, 100_005)),
        ("gowalla", "gowalla/train.txt", (1_027_370, 29_858, 40_981, 29_858)),
        ("citeulike-a", "citeulike-a/users.dat", (204_986, 5_551, 16_980, 5_551)),
    ],
)
def test_counts(home, name, path, counts):
    log = real_log(path)
    for connection in ingest_file(home, name, log if name == "ml-1m" else log.parent):  # ml-1m's folder holds two logs
        assert connection.execute(COUNTS).fetchone() == counts


def test_every_line_of_ml_1m_is_where_it_stands(home):
    path = real_log("ml-1m/ratings.csv")
    expected = polars.read_csv(path, schema_overrides=[polars.String, polars.String, polars.Float64])
    assert len(expected) == 1_000_209
    expected = expected.with_row_index("line_number", offset=2).to_arrow()
    for connection in ingest_file(home, "ml-1m", path):
        connection.register("expected", expected)
        query = """
            select * from raw.events full join expected using (line_number)
            where (events.user_id, events.item_id, events.value) is distinct from
                (expected.user_id, expected.item_id, expected.rating)
        """
        assert connection.execute(query).fetchall() == []
