"""The compiled parser of plain lines against the SQL that reads every line, on lines of every kind."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from oneclass.models import log_lines
from oneclass.tasks import datasets
from oneclass.tasks.ingest import plain_lines
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import write_tables

IDS = (
    *("1", "22", "abc", "a b", " 7", "7 ", "NA", "NaN", "NULL", "N", "None", "nan", "\\N", "<NA>", "", "\t", "日本"),
    *("é", "17850.0", "-5.00", "1.05", "x.0", "x" * 999, "x" * 1001, "x" * 10_001, "12:", "0x1", "a\x01", "\x01a"),
    *("\u00a0z", "a\x7f", "-", "0", "00", "#c", "a'b"),
)
VALUES = (
    *("1", "2.5", "4.", ".5", "-1", "+1", "1e3", "5_0", "nan", "inf", "", "abc", "3 ", " 3", "-0", "-0.0", "007"),
    *(
        "0.1",
        "0.30000000000000004",
        "123456789012345",
        "1234567890123456",
        "999999999999999.9",
        "1.7976931348623157e308",
    ),
    *("4.35", "2.675", "0.000000000000001", "12345.678901234"),
)
TIMES = (
    *("1234567890", "0123456789", "999999999", "1000000000", "4102444799", "4102444800", "1234567890123", "20200102"),
    *("1234567890123456", "1234567890123456789", "9223372036854775807", "4102444799999", "4102444800000", "2020-01-02"),
    *("2020-02-30", "2020-02-29", "1900-02-29", "2000-02-29", "0999-01-01", "1000-01-01", "9999-12-31", "2020-13-01"),
    *("2020-01-02 03:04:05", "2020-01-02T23:59:59", "2020-01-02 24:00:00", "2020-01-02 23:59:60", "2020-01-02 03:04"),
    *("2020-01-02T03:04:05Z", "2020-01-02 03:04:05+02", "2020/01/02", "", "x", "12345678 0", "1234_67890", "1e9"),
    *("2020-1-2", "2020-01-02 03:04:05.5", "-234567890", "2020-01-0a", "1234567890.5", "2020-00-10", "0000-01-01"),
)
HEADERS = (" 12 :", "ab:", ":", "12:x", "1" * 40 + ":", "12: ", "0:", "12::")


def draw_text(generator: random.Random, odd: tuple[str, ...], usual: object) -> str:
    """An odd text one time out of six."""
    return generator.choice(odd) if generator.random() < 1 / 6 else str(usual)


def movielens_line(generator: random.Random) -> str:
    line = ",".join(
        [
            draw_text(generator, IDS, generator.randint(1, 999)),
            draw_text(generator, IDS, generator.randint(1, 99_999)),
            draw_text(generator, VALUES, generator.randint(1, 10) / 2),
            draw_text(generator, TIMES, generator.randint(10**9, 2 * 10**9)),
        ]
    )
    shortened = line.rpartition(",")[0]
    odd = ("", "   ", "userId,movieId,rating,timestamp", f"{line},", shortened, f"# {line}")
    return generator.choice(odd) if generator.random() < 0.1 else line


def netflix_line(generator: random.Random) -> str:
    if generator.random() < 0.1:
        return draw_text(generator, HEADERS, f"{generator.randint(1, 17_770)}:")
    day = f"2005-{generator.randint(1, 12):02}-{generator.randint(1, 28):02}"
    user, value = (
        draw_text(generator, IDS, generator.randint(1, 999)),
        draw_text(generator, VALUES, generator.randint(1, 5)),
    )
    line = f"{user},{value},{draw_text(generator, TIMES, day)}"
    return generator.choice(("", f"{line},7", "zzz")) if generator.random() < 0.05 else line


FORMATS: dict[str, tuple[list[str], Callable[[random.Random], str]]] = {
    "ml-20m": (["userId,movieId,rating,timestamp", *["1,2,3.5,1234567890"] * 30], movielens_line),
    "netflix": (["7:", *["6,3,2005-09-06"] * 30], netflix_line),
}


def write_logs(folder: Path, name: str, seed: int) -> list[Path]:
    """Two logs of a format, one with LF and one with CRLF, one without a last line end."""
    generator = random.Random(seed)
    begins, draw_line = FORMATS[name]
    paths = []
    for number, line_end in enumerate(("\n", "\r\n"), 1):
        lines = [*begins, *(draw_line(generator) for _ in range(500))]
        path = folder / (f"ratings{number}.csv" if name == "ml-20m" else f"combined_data_{number}.txt")
        path.write_bytes((line_end.join(lines) + line_end * (number - 1)).encode())
        paths.append(path)
    return paths


def ingest_logs(folder: Path, name: str, paths: list[Path]) -> tuple[list[tuple], list[tuple]]:
    """The events and the rejects of logs, values by their bits."""
    home, dataset = Home(folder / "home", name, Limits(threads=2, memory=1 << 30)), datasets.load_dataset(name, folder)
    (folder / "scratch").mkdir(parents=True)
    write_tables(home)
    logs = SourceScanner(dataset).scan(paths)
    with warehouse.open_warehouse(home) as connection:
        load_logs(connection, list(enumerate(logs, 1)), folder / "scratch", dataset)
        events = connection.execute("select * replace (hash(value) as value) from raw.events order by all").fetchall()
        rejects = connection.execute("select * from raw.rejects order by all").fetchall()
    assert list((folder / "scratch").iterdir()) == []
    return events, rejects


@pytest.mark.parametrize("chunk_bytes", [1 << 23, 50])
@pytest.mark.parametrize("name", FORMATS)
def test_plain_lines_and_sql_read_the_same(name, chunk_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(plain_lines, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(plain_lines, "MIN_PLAIN_SHARE", 0)
    insert, left = plain_lines.insert_plain_lines, []

    def count_others(*arguments):
        others = insert(*arguments)
        left.append(others.events)
        return others

    monkeypatch.setattr(plain_lines, "insert_plain_lines", count_others)
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        paths = write_logs(folder, name, seed)
        by_sql = ingest_logs(folder / "sql", name, paths)
        assert len(left) == seed  # such small logs are left to SQL
        with monkeypatch.context() as context:
            context.setattr(plain_lines, "MIN_BYTES", 0)
            assert ingest_logs(folder / "plain", name, paths) == by_sql
        assert 0 < left[seed] < 900
        assert min(map(len, by_sql)) > 100


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("userId,movieId,rating,timestamp\n" + "1,2,3,1234567890\n" * 9, True),
        ("\ufeffuserId,movieId,rating,timestamp\n" + "1,2,3,1234567890\n" * 9, False),  # a byte order mark
        ("userId,movieId,rating,timestamp\n" + "1, 2, 3, 1234567890\n" * 9, False),  # mostly not plain
        ('userId,movieId,rating,timestamp\n"1",2,3,1234567890\n' + "1,2,3,1234567890\n" * 99, False),  # quotes
    ],
)
def test_only_logs_of_plain_lines_are_read_by_the_compiled_parser(text, is_read, tmp_path, monkeypatch):
    monkeypatch.setattr(plain_lines, "MIN_BYTES", 0)
    insert, calls = plain_lines.insert_plain_lines, []
    monkeypatch.setattr(plain_lines, "insert_plain_lines", lambda *given: calls.append(given) or insert(*given))
    path = tmp_path / "ratings.csv"
    path.write_text(text, encoding="utf-8")
    events, rejects = ingest_logs(tmp_path, "ml-20m", [path])
    assert (len(events), rejects, len(calls)) == (text.count("\n") - 1, [], is_read)


@pytest.mark.parametrize(("name", "odd"), [("ml-20m", "1,2,3,garbage"), ("netflix", "6,3,garbage")])
def test_the_only_other_line_is_a_reject(name, odd, tmp_path, monkeypatch):
    monkeypatch.setattr(plain_lines, "MIN_BYTES", 0)
    path, (begins, _) = tmp_path / "combined_data_1.txt", FORMATS[name]
    path.write_text("\n".join([*begins, odd]), encoding="utf-8")
    events, [reject] = ingest_logs(tmp_path, name, [path])
    assert (len(events), reject[:3]) == (30, (1, 32, odd))


def test_a_full_array_ends_a_call_and_the_next_goes_on():
    ids = [f"user{number}" * 150 for number in range(30)]
    text = "".join(f"{user}::i::4\n" for user in ids).encode()
    form = log_lines.LineFormat(3, 0, 1, 2, -1, 0, False, False, True, True, -np.inf, np.inf, 0)
    empty = np.zeros(0, np.uint8)
    texts = log_lines.Texts(np.frombuffer(b"::", np.uint8), empty, empty, np.zeros(1, np.int64))
    position = log_lines.Position(0, 1, np.zeros(log_lines.MAX_MOVIE_BYTES, np.uint8), 0)
    rows, calls = [], 0
    while position.byte < len(text):
        found = log_lines.allocate_lines()._replace(users=np.empty(5000, np.uint8))
        array = np.frombuffer(text, np.uint8)
        position, counts = log_lines.parse_lines(array, len(text), position, form, texts, found)
        ends = found.user_ends[: counts.plain + 1]
        rows += [bytes(found.users[first:end]).decode() for first, end in pairwise(ends)]
        rows += [text[first:end].decode().split("::")[0] for first, end, _ in found.others[: counts.others]]
        calls += 1
    assert sorted(rows) == sorted(ids)
    assert calls > 1
