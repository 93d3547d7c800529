"""Secrets of a real run and a real deployment: where they are used, and that nothing shows them."""

import contextlib
import sqlite3
import sys

import duckdb
import pytest
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from pydantic import SecretStr

from oneclass.flows import commands, pipeline
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.source import Source
from oneclass.tasks.ingest.query import fetch_rows
from oneclass.tasks.orchestration.notifications import NotifySettings, send_notifications
from oneclass.tasks.stores.home import Home

SECRETS = ("hook-5f2c9Zq81x", "argument-77Qp03Lm")
SMALL = ["demo.users=60", "demo.items=30", "demo.likes=500"]
RUN = {"dataset": "shop", "run_id": "r1", "state": "failed", "text": "It failed."}


@pytest.fixture
def block(prefect_server):
    """Keeps a value in a Secret block on the server, and returns the block's name."""

    def keep(value):
        Secret(value=SecretStr(value)).save("a-secret", overwrite=True)
        return "a-secret"

    return keep


def all_bytes(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def all_cells(warehouse):
    """The rows of all tables as text, since DuckDB compresses what it stores."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        tables = connection.execute("select table_schema, table_name from information_schema.tables").fetchall()
        return str([connection.execute(f'from "{schema}"."{name}"').fetchall() for schema, name in tables])


@pytest.mark.slow
def test_nothing_shows_the_secrets_of_a_run_and_of_a_deployment(
    prefect_server, server_home, receiver, tmp_path, monkeypatch, caplog, capfd
):
    address, paths = receiver.address, receiver.paths
    (tmp_path / "echo.py").write_text("import sys; sys.exit(f'{sys.argv} cannot be sent')")
    monkeypatch.setenv("HOOK", f"{address}/refused/{SECRETS[0]}")
    (tmp_path / "command").write_text(f"{sys.executable} {tmp_path / 'echo.py'} --token {SECRETS[1]}\n")
    secrets = ["notify.webhook=env:HOOK", f"notify.command=file:{tmp_path / 'command'}"]
    of_home = ["--dataset", "demo", "--home", str(tmp_path / "home")]
    given = [*of_home, "--set", *SMALL, "notify.when=always", *secrets]
    assert commands.main("nightly_retrain", [*given, "--models", "popularity"]) == 0
    assert paths == [f"/refused/{SECRETS[0]}"]
    assert commands.main("tune", [*of_home, "--model", "mrf_dense", "--trials", "1"]) == 0
    assert commands.main("deploy", given) == 0
    with get_client(sync_client=True) as client:
        deployed = client.read_deployment_by_name("nightly-retrain/nightly-retrain").parameters
    night = {**deployed, "models": ["popularity"]}
    assert pipeline.nightly_retrain(**night, return_state=True).is_completed()  # as a worker runs it
    assert paths == 2 * [f"/refused/{SECRETS[0]}"]
    said = caplog.text + "".join(capfd.readouterr())
    assert said.count("notify.webhook: the notification failed: HTTP Error 500") >= 2
    assert said.count("notify.command: the notification failed: it ended with status 1") >= 2
    cells = all_cells(tmp_path / "home" / "demo" / "warehouse.duckdb")
    for secret in SECRETS:
        assert secret not in said and secret not in cells
        assert secret.encode() not in all_bytes(tmp_path / "home")
        # The server has the address in a Webhook block, for its automations: encrypted.
        assert secret.encode() not in all_bytes(server_home)
    assert b"nightly-retrain" in all_bytes(server_home)


@pytest.mark.parametrize("place", ["env", "file", "block"])
def test_a_target_is_read_from_where_the_settings_name_it(receiver, block, tmp_path, monkeypatch, place):
    address, paths = receiver.address, receiver.paths
    (tmp_path / "hook").write_text(f"{address}/by-file\n")
    monkeypatch.setenv("SHOP_HOOK", f"{address}/by-env")
    names = {"env": "SHOP_HOOK", "file": str(tmp_path / "hook"), "block": block(f"{address}/by-block")}
    send_notifications(NotifySettings(webhook=f"{place}:{names[place]}"), **RUN)
    assert paths == [f"/by-{place}"]


def test_a_program_is_read_from_where_the_settings_name_it(block, tmp_path):
    (tmp_path / "write.py").write_text(f"import sys; open({str(tmp_path / 'notified')!r}, 'w').write(sys.argv[1])")
    command = f"{sys.executable} {tmp_path / 'write.py'} token"
    send_notifications(NotifySettings(command=f"block:{block(command)}"), **RUN)
    assert (tmp_path / "notified").read_text() == "token"


def test_a_databases_url_is_read_from_a_block(block, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table orders as select 1 as id")
    source = Source(query="select * from orders", url=f"block:{block(f'sqlite://{tmp_path}/shop.db')}")
    fetch_rows(Home(tmp_path, "shop"), Dataset(name="shop"), source, tmp_path / "rows.parquet")
    assert duckdb.sql(f"from '{tmp_path}/rows.parquet'").fetchall() == [(1,)]


def test_an_absent_block_says_what_to_do(prefect_server, caplog):
    send_notifications(NotifySettings(webhook="block:no-block"), **RUN)
    assert "notify.webhook = block:no-block: the Secret block no-block cannot be read" in caplog.text
    assert "Store an address such as https" in caplog.text
