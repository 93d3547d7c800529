"""Say what a file is that is not read as it stands, and with which lines it becomes a log.

The lines are Python unless the text before them says otherwise. In them PATH, TARGET and COPY stand for the file, a
Parquet file beside it, and a CSV file beside it.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MIN_MATCH = 0.5
MIN_MATRIX_ITEMS = 3
MATRIX = "If its rows are users and its columns items, write the entries as Parquet, in Python"
TABLE = "Write it as Parquet, in Python"
WRITE_MATRIX = """
entries = {"user_id": matrix.row, "item_id": matrix.col, "value": matrix.data}
polars.DataFrame(entries).write_parquet(TARGET)"""
"""Of an array or matrix `matrix` in SciPy's coordinate form."""


class Kind(NamedTuple):
    """A kind of file: what it is, what to do about it, and the lines that do it, if any."""

    what: str
    advice: str
    lines: str = ""


NPZ = Kind(
    "an archive of arrays (.npz)",
    "If it is a matrix of users and items that SciPy saved, write its entries as Parquet, in Python",
    "import polars, scipy\nmatrix = scipy.sparse.coo_array(scipy.sparse.load_npz(PATH))" + WRITE_MATRIX,
)
DUCKDB_MAGIC = slice(8, 12)
DUCKDB = Kind(
    "a database of DuckDB",
    "Write its table as Parquet, in Python",
    """import duckdb
log = duckdb.connect(PATH, read_only=True)
print(log.sql("show tables"))    # name one in the next line
log.sql("from orders").write_parquet(TARGET)""",
)
PICKLE = Kind(
    "an object of Python, pickled",
    "If it is a table of pandas and from somebody you trust, write it as Parquet, in Python",
    "import pandas\npandas.read_pickle(PATH).to_parquet(TARGET)",
)
BINARY_KINDS = {
    b"PK\x05\x06": Kind("a zip archive without a file", "Name a log"),
    b"PK\x03\x04": Kind("an archive or a workbook inside an archive", "Unpack it and name the file inside"),
    b"PAR1": Kind("a Parquet file inside an archive", "Unpack it and name the file inside"),
    b"%PDF": Kind("a PDF document", "Fetch the log itself"),
    b"7z\xbc\xaf": Kind("a 7z archive", "Unpack it and name the logs inside"),
    b"Rar!": Kind("a RAR archive", "Unpack it and name the logs inside"),
    b"\x04\x22\x4d\x18": Kind("packed by LZ4", "Unpack it (lz4 -d) and name the log inside"),
    b"\x1f\x9d": Kind("packed by compress", "Unpack it (uncompress) and name the log inside"),
    b"\x7fELF": Kind("a program", "Name a log"),
    b"\x89PNG": Kind("a picture", "Name a log"),
    b"RDX": Kind(
        "a workspace of R",
        "Write its first table as CSV, in R",
        "write.csv(get(load(PATH)[1]), COPY, row.names = FALSE)",
    ),
    b"X\n\0": Kind(
        "an object of R", "Write its table as CSV, in R", "write.csv(readRDS(PATH), COPY, row.names = FALSE)"
    ),
    b"MATLAB 5.0": Kind(
        "a file of MATLAB",
        "If its first variable is a matrix of users and items, write its entries as Parquet, in Python",
        "import polars, scipy\n"
        "name = scipy.io.whosmat(PATH)[0][0]\n"
        "matrix = scipy.sparse.coo_array(scipy.io.loadmat(PATH)[name])" + WRITE_MATRIX,
    ),
    b"MATLAB 7.3": Kind("a file of MATLAB in its form 7.3", "Save it by `save -v7`, or its table as CSV"),
    b"\x93NUMPY": Kind(
        "an array of NumPy",
        MATRIX,
        "import numpy, polars, scipy\nmatrix = scipy.sparse.coo_array(numpy.load(PATH))" + WRITE_MATRIX,
    ),
    b"\x89HDF": Kind(
        "an HDF5 file",
        "Write its table as Parquet, in Python with the packages pandas and tables",
        "import pandas\npandas.read_hdf(PATH).to_parquet(TARGET)",
    ),
    b"<stata_dta>": Kind("a file of Stata", TABLE, "import pandas\npandas.read_stata(PATH).to_parquet(TARGET)"),
    b"$FL2": Kind(
        "a file of SPSS",
        "Write it as Parquet, in Python with the packages pandas and pyreadstat",
        "import pandas\npandas.read_spss(PATH).to_parquet(TARGET)",
    ),
    b"\0" * 12 + b"\xc2\xea\x81`": Kind(
        "a file of SAS", TABLE, "import pandas\npandas.read_sas(PATH).to_parquet(TARGET)"
    ),
    **{bytes([0x80, protocol]): PICKLE for protocol in (2, 3, 4, 5)},
}
"""First bytes -> the kind of a file."""
ACCESS_LOG = Kind(
    "an access log of a web server",
    "If the items are its pages, and the user is who is logged in, else the address, write it as Parquet, in Python",
    r"""import polars, re
from datetime import datetime
hit = re.compile(r'(\S+) \S+ (\S+) \[([^]]+)\] "GET ([^ ?"]+)[^"]*" 200 ')
hits = [found.groups() for found in map(hit.match, open(PATH, errors="replace")) if found]
times = [datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z") for _, _, time, _ in hits]
users = [name if name != "-" else address for address, name, _, _ in hits]
log = {"user_id": users, "item_id": [page for *_, page in hits], "timestamp": times}
polars.DataFrame(log).write_parquet(TARGET)""",
)
LIBSVM = Kind(
    "a text of libsvm's form",
    "If a line has a user and `item:value`, write it as Parquet, in Python (if it begins with a label and is a user by "
    "itself, with `for user, (_, *pairs) in enumerate(lines)`)",
    """import polars
lines = [line.split() for line in open(PATH)]
events = [(user, *pair.split(":")) for user, *pairs in lines for pair in pairs]
polars.DataFrame(events, ["user_id", "item_id", "value"], orient="row").write_parquet(TARGET)""",
)
KEY_VALUE = Kind(
    "a text of key=value pairs",
    TABLE,
    r"""import polars, re
pairs = re.compile(r'([\w.]+)=(?:"([^"]*)"|(\S*))')
lines = [{key: quoted or plain for key, quoted, plain in pairs.findall(line)} for line in open(PATH)]
polars.DataFrame(lines, infer_schema_length=None).write_parquet(TARGET)""",
)
TUPLES = Kind(
    "Python's text of tuples or lists",
    "Write them as CSV without a header, in Python",
    """import ast, csv
events = [ast.literal_eval(line.strip().strip(",")) for line in open(PATH) if line.strip()]
csv.writer(open(COPY, "w", newline="")).writerows(events)""",
)
LINE_KINDS = {
    re.compile(r'\S+ \S+ \S+ \[\d+/\w+/\d+:[\d:]+ [+-]\d+\] "[^"]*" \d+ .*'): ACCESS_LOG,
    re.compile(r"[\w.+-]+( \d+:-?\d+(\.\d+)?(e-?\d+)?)+ *"): LIBSVM,
    re.compile(r"([\w.]+=(\"[^\"]*\"|\S*)\s*){2,}"): KEY_VALUE,
    re.compile(r"[(\[].*[)\]],?"): TUPLES,
    re.compile(r"\S+ \|\w.*"): Kind("a text of Vowpal Wabbit", "Write its users and items as CSV"),
}
"""The form of most lines -> the kind of a text."""
HEAD_KINDS = {
    re.compile(r"%%MatrixMarket .*"): Kind(
        "a matrix of Matrix Market",
        MATRIX,
        "import polars, scipy\nmatrix = scipy.sparse.coo_array(scipy.io.mmread(PATH))" + WRITE_MATRIX,
    ),
    re.compile(r"@relation .*", re.IGNORECASE): Kind(
        "a file of Weka (ARFF)",
        TABLE,
        """import pandas, scipy
frame = pandas.DataFrame(scipy.io.arff.loadarff(PATH)[0])
frame = frame.map(lambda cell: cell.decode() if isinstance(cell, bytes) else cell)
frame.to_parquet(TARGET)""",
    ),
    re.compile(r"(insert into|create table|drop table|-- (mysql|postgresql|mariadb)).*", re.IGNORECASE): Kind(
        "a dump of SQL", "Load it into its database, and state a query of it under [source] in the data set's file"
    ),
    re.compile(r"\([dl]p0|ccopy_reg|c\w+\.\w+"): Kind(
        "an object of Python, pickled", "Write its table as CSV or Parquet"
    ),
    re.compile(r"- \w+: .*"): Kind("YAML", "Write it as JSON lines"),
    re.compile(r"\s*<(!doctype|html|\?xml|\w+)\b.*", re.IGNORECASE): Kind(
        "a page of HTML or XML, not a log", "Fetch the log itself, or write its rows as CSV"
    ),
}
"""The form of the first line -> the kind of a text."""


def explain_bytes(path: str, head: bytes) -> str:
    """Return the refusal of a binary file by its first bytes; nothing if they are not known."""
    kinds = [kind for magic, kind in BINARY_KINDS.items() if head.startswith(magic)]
    kinds += [DUCKDB] if head[DUCKDB_MAGIC] == b"DUCK" else []
    return _explain(path, path, kinds[0]) if kinds else ""


def explain_text(path: str, lines: Sequence[str]) -> str:
    """Return the refusal of a text by the form of its lines; nothing if it is not known."""
    filled = [line.strip() for line in lines if line.strip()][:100]
    for pattern, kind in HEAD_KINDS.items():
        if pattern.fullmatch(filled[0]):
            return _explain(f"{path}, line 1", path, kind)
    for pattern, kind in LINE_KINDS.items():
        if sum(pattern.fullmatch(line) is not None for line in filled) > MIN_MATCH * len(filled):
            return _explain(f"{path}, line 1", path, kind)
    return ""


def explain_archive(path: Path, names: Sequence[str], module: str) -> str:
    """Return the refusal of an archive of several files, with the command that unpacks it.

    Args:
        module: of Python that unpacks it, `zipfile` or `tarfile`.
    """
    if module == "zipfile" and any(name.endswith(".npy") for name in names):
        return _explain(str(path), str(path), NPZ)
    folder = path.parent / path.name.split(".")[0]
    folder = folder if folder != path else path.with_name(f"{path.name}_files")
    logs = [name for name in names if not re.search(r"(?i)readme|licen[cs]e|\.(md|pdf|html?)$", name)] or list(names)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    what = "zip" if module == "zipfile" else "tar"
    unpack = f"python -m {module} -e {shlex.quote(str(path))} {shlex.quote(str(folder))}"
    named = f"--source {shlex.quote(str(folder / logs[0]))}"
    return (
        f"{path}: is a {what} archive of {len(names)} file{'s' * (len(names) != 1)}: {shown}. Unpack it in a shell, "
        f"and name the log inside, such as {named}:\n\n{unpack}"
    )


def explain_database(path: Path, tables: Sequence[str]) -> str:
    """Return the refusal of an SQLite database of several tables, or of none."""
    if not tables:
        return f"{path}: is an SQLite database without a table. Name a log."
    table = '"' + tables[0].replace('"', '""') + '"'
    lines = (
        "import polars, sqlite3\n"
        "database = sqlite3.connect(PATH)\n"
        f"polars.read_database({f'select * from {table}'!r}, database).write_parquet(TARGET)"
    )
    what = f"an SQLite database of the tables {', '.join(tables)[:200]}"
    return _explain(str(path), str(path), Kind(what, "Write the one with the log as Parquet, in Python", lines))


def explain_json(path: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the refusal of JSON objects whose keys are users or tables, nothing for others."""
    tables = [key for key, value in records[0].items() if _is_list_of(dict, value)]
    if len(records) == 1 and len(tables) > 1:
        lines = "import json, polars\ntables = json.load(open(PATH))\n"
        lines += f"polars.DataFrame(tables[{tables[-1]!r}]).write_parquet(TARGET)"
        what = f"a JSON object of several tables: {', '.join(tables)[:200]}"
        return _explain(path, path, Kind(what, "Write the one with the log as Parquet, in Python", lines))
    values = [value for record in records for value in record.values()]
    scalars = (str, int, float)
    if values and all(_is_list_of(scalars, value) for value in values):
        events, names = "[(user, item) for user, items in users.items() for item in items]", ["user_id", "item_id"]
    elif values and all(isinstance(value, dict) and _is_list_of(scalars, list(value.values())) for value in values):
        events = "[(user, *pair) for user, items in users.items() for pair in items.items()]"
        names = ["user_id", "item_id", "value"]
    else:
        return ""
    users = "json.load(open(PATH))"
    if len(records) > 1:
        users = "{user: items for line in open(PATH) for user, items in json.loads(line).items()}"
    lines = (
        f"import json, polars\nusers = {users}\nevents = {events}\n"
        f"polars.DataFrame(events, {names}, orient='row', strict=False).write_parquet(TARGET)"
    )
    what = f"a JSON object with keys such as {json.dumps(next(iter(records[0])))}"
    advice = "If its keys are users and their values items, write them as Parquet, in Python"
    return _explain(path, path, Kind(what, advice, lines))


def _is_list_of(kind: type | tuple[type, ...], value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, kind) for one in value)


def explain_matrix(path: str, delimiter: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the refusal of a table with one row per user and one column per item, nothing for others."""
    cells = [cell.strip() for row in rows for cell in row[1:]]
    is_matrix = len(names) > MIN_MATRIX_ITEMS and all(re.fullmatch(r"(-?\d+(\.\d+)?)?", cell) for cell in cells)
    if not is_matrix or len(delimiter) != 1:
        return ""
    lines = (
        "import polars\n"
        f"table = polars.read_csv(PATH, separator={delimiter!r})\n"
        "events = table.unpivot(index=table.columns[0], variable_name='item_id', value_name='value')\n"
        "events = events.rename({table.columns[0]: 'user_id'}).drop_nulls().filter(polars.col('value') != 0)\n"
        "events.write_parquet(TARGET)"
    )
    what = f"a table of numbers with the columns {', '.join(names)[:200]}"
    advice = (
        "If each line is a user and each further column an item, write a line for each entry, as Parquet, in Python"
    )
    return _explain(f"{path}, line 1", path, Kind(what, advice, lines))


def explain_list_cells(path: str, delimiter: str, column: str, cells: Sequence[str]) -> str:
    """Return the refusal of items in Python's text of lists, such as `['a', 'b']`; nothing for others."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    lists = [cell for cell in filled if cell[0] in "[({" and cell[-1] in "])}"]
    if not column or len(delimiter) != 1 or len(lists) <= MIN_MATCH * len(filled):
        return ""
    lines = (
        "import polars\n"
        f"table = polars.read_csv(PATH, separator={delimiter!r}, infer_schema=False)\n"
        f'items = polars.col({column!r}).str.extract_all(r"[^\\s,\'\\"()\\[\\]{{}}]+")\n'
        f"table.with_columns(items).explode({column!r}).write_parquet(TARGET)"
    )
    what = f"a table whose column {column} has lists, such as {lists[0][:60]}"
    return _explain(path, path, Kind(what, "Write a line for each item, as Parquet, in Python", lines))


def _explain(place: str, path: str, kind: Kind) -> str:
    """Return the refusal of a file, with the lines that convert it filled in.

    Args:
        place: what to name first, the path or a line of it.
    """
    if not kind.lines:
        return f"{place}: is {kind.what}. {kind.advice}."
    copy = Path(path).with_name(f"{Path(path).stem}_log.csv")
    names = {"PATH": path, "TARGET": str(copy.with_suffix(".parquet")), "COPY": str(copy)}
    lines = re.sub("|".join(names), lambda found: repr(names[found[0]]), kind.lines)
    return f"{place}: is {kind.what}. {kind.advice}, and name the copy:\n\n{lines}"
