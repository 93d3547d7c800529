"""Users are forgotten: no byte of a home has their ids, and its models are those of a home that never had them."""

import gzip
import json
import os
import shutil
import uuid
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from oneclass.flows import commands
from oneclass.tasks.forget import stage

GONE = "customer-4f1d9a77"
ALSO_GONE = "customer-b2c8e035"
pytestmark = pytest.mark.slow  # six runs of all stages

SHOP = ["--dataset", "shop", "--home"]
MODELS = ["--models", "mrf_dense", "--protocols", "strong_generalization", "--threads", "2"]
COPY = ["sh", "-c", "cp -f $ONECLASS_PUBLICATION/recommendations.parquet $ONECLASS_HOME"]
SETTINGS = ["--set", "train.tune=off", "mrf_dense.l2=20.0", "split.held_out_share=0.2"]
SETTINGS += [f"publish.after={json.dumps(COPY)}"]


def write_ratings(file: int) -> pl.DataFrame:
    """Events of 60 people of two tastes, two of whom are to be forgotten, in one of three logs."""
    generator = np.random.default_rng(file)
    names = [f"customer-{user:04}" for user in range(58)] + [GONE, ALSO_GONE]
    rows = [
        (name, f"item-{generator.integers(12) + user % 2 * 12}", 5, f"2026-01-0{file} 10:{user:02}:00")
        for user, name in enumerate(names)
        for _ in range(6)
    ]
    generator.shuffle(rows)
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")


def write_logs(landing: Path, gone: tuple[str, ...] = ()) -> None:
    """Write logs of two forms, without some users."""
    landing.mkdir(parents=True, exist_ok=True)
    logs = {file: write_ratings(file).filter(~pl.col("user_id").is_in(gone)) for file in range(1, 5)}
    (landing / "a.csv").write_text(pl.concat([logs[1], logs[2]]).write_csv())
    pl.concat([logs[3], logs[4]]).write_parquet(landing / "b.parquet", row_group_size=100)


def find_traces(folder: Path, *ids: str) -> list[str]:
    """The files of a folder with one of the ids: in their bytes, packed or not, or in a column of text."""
    traces = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        texts = [os.fsencode(path), path.read_bytes(), *unpack_bytes(path)]
        if any(identity.encode() in text for identity in ids for text in texts):
            traces.append(str(path.relative_to(folder)))
    return traces


def unpack_bytes(path: Path) -> list[bytes]:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        return [gzip.decompress(content)]
    if zipfile.is_zipfile(path):  # npz too
        with zipfile.ZipFile(path) as archive:
            return [archive.read(name) for name in archive.namelist()]
    if content.startswith(b"PAR1"):
        with pq.ParquetFile(path) as file:
            return [repr(file.read().to_pylist()).encode(), repr(file.metadata.metadata).encode()]
    if content[8:12] == b"DUCK":
        with duckdb.connect(str(path), read_only=True) as connection:
            tables = connection.execute("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
            return [repr(connection.execute(f"from {table}").fetchall()).encode() for (table,) in tables]
    return []


def run_backfill(home: Path) -> int:
    return commands.main("backfill", [*SHOP, str(home), *MODELS, *SETTINGS])


def run_forget(home: Path, *users: str) -> int:
    return commands.main("forget", [*SHOP, str(home), "--user", *users])


def fitted_arrays(home: Path) -> dict[str, bytes]:
    """The bytes of every fitted array by its path, which has the digest of the fit."""
    return {str(file.relative_to(home)): file.read_bytes() for file in (home / "shop" / "models").rglob("*.npy")}


def list_prefect_runs(run_ids: list[str]) -> set[str]:
    """Those of the runs that Prefect shows or has an artifact of."""
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[uuid.UUID(run_id) for run_id in run_ids]))
    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(flow_run_filter=chosen)
        return {str(run.id) for run in client.read_flow_runs(flow_run_filter=chosen)} | {
            str(artifact.flow_run_id) for artifact in artifacts
        }


@pytest.fixture(scope="module")
def served(prefect_server, tmp_path_factory) -> Path:
    """A home after two runs, with a page, a line that cannot be read and quarantined files that have the ids."""
    home = tmp_path_factory.mktemp("served")
    landing = home / "shop" / "landing"
    write_logs(landing)
    assert run_backfill(home) == 0
    (landing / "h.csv").write_text(write_ratings(8).write_csv() + f"{GONE},item-1,many,2026-01-08 00:00:00\n")
    (landing / "other.csv").write_text(f"a;b;c\n1;2;3\n1;{GONE};3\n{GONE}x;2;3\n")
    assert run_backfill(home) == 0
    assert commands.main("explain", [*SHOP, str(home), "--user", GONE]) == 0
    return home


@pytest.fixture
def home(served, tmp_path) -> Path:
    return shutil.copytree(served, tmp_path / "home", symlinks=True)


def test_no_byte_has_the_ids_and_the_models_are_those_of_a_home_without(home, tmp_path, capsys, monkeypatch):
    before = find_traces(home, GONE)
    names = {"shop/landing/a.csv", "shop/warehouse.duckdb", "shop/landing/quarantine/other.csv"}
    assert names | {"recommendations.parquet"} <= set(before)  # which `publish.after` copies
    assert any(name.startswith("shop/report/users/") for name in before)
    assert any(name.endswith("published.duckdb") for name in before)

    with duckdb.connect(str(home / "shop" / "warehouse.duckdb")) as connection:
        runs = [run for (run,) in connection.execute("select run_id from operations.runs order by rowid").fetchall()]
        naming = f'update operations.contract_results set samples = \'[{{"user_id": "{GONE}"}}]\''
        connection.execute(f"{naming} where run_id = ? and rule = 'events_counted'", [runs[0]])
    assert list_prefect_runs(runs) == {*runs}

    with monkeypatch.context() as patched:  # as if killed once the rebuilt tables are published
        patched.setattr(stage, "certify_removal", lambda *_: 1 / 0)
        assert run_forget(home, GONE, ALSO_GONE) == 1
    for refused in (lambda: run_backfill(home), lambda: commands.main("promote", [*SHOP, str(home), "--rollback"])):
        assert refused() == 2
        assert "a user is being forgotten" in capsys.readouterr().err
    assert run_forget(home, GONE, ALSO_GONE) == 0
    assert find_traces(home, GONE, ALSO_GONE) == ["shop/landing/quarantine/other.csv"]
    copy, published = home / "recommendations.parquet", home / "shop" / "published" / "recommendations.parquet"
    assert copy.read_bytes() == published.read_bytes()
    assert (home / "shop/landing/quarantine/other.csv").read_text() == f"a;b;c\n1;2;3\n{GONE}x;2;3\n"  # another id
    assert list_prefect_runs(runs) == {runs[1]}
    [certificate] = (home / "shop" / "forgotten").iterdir()
    facts = json.loads(certificate.read_text())
    assert facts["published_at"] > facts["started_at"]
    assert (facts["users"], facts["events"], facts["left"]) == (2, 60, [])
    expected = {"landing/a.csv": 24, "landing/b.parquet": 24, "landing/h.csv": 13, "landing/quarantine/other.csv": 1}
    assert facts["files"] == expected

    without, gone = tmp_path / "without", (GONE, ALSO_GONE)
    write_logs(without / "shop" / "landing", gone)
    remaining = write_ratings(8).filter(~pl.col("user_id").is_in(gone))
    (without / "shop" / "landing" / "h.csv").write_text(remaining.write_csv())
    assert run_backfill(without) == 0
    assert fitted_arrays(home) == fitted_arrays(without) != {}
    for file in ("recommendations.parquet", "lists.parquet"):
        lists = [pl.read_parquet(one / "shop/published" / file) for one in (home, without)]
        assert lists[0].equals(lists[1]) and len(lists[0])

    assert run_backfill(home) == 0 and fitted_arrays(home) == fitted_arrays(without)  # a night with nothing new


def test_the_last_person_is_forgotten_and_nothing_is_published_any_more(prefect_server, tmp_path):
    landing = tmp_path / "shop" / "landing"
    landing.mkdir(parents=True)
    (landing / "a.csv").write_text(f"user_id,item_id\n{GONE},x\n{GONE},y\n")
    popular = ["--models", "popularity", "--protocols", "leave_one_out", "--set", "publish.seen=include"]
    assert commands.main("backfill", [*SHOP, str(tmp_path), *popular]) == 0
    assert run_forget(tmp_path, GONE) == 0
    assert find_traces(tmp_path, GONE) == [] and not (tmp_path / "shop" / "published").exists()
    (landing / "b.csv").write_text("user_id,item_id\nsomebody,x\nsomebody,y\n")
    assert commands.main("backfill", [*SHOP, str(tmp_path), *popular]) == 0
