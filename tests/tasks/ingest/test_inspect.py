"""`flows.inspect`: what a person needs to see before a run, and the data set's file."""

import tomllib

import pytest

from oneclass.flows import commands
from oneclass.tasks import datasets
from oneclass.tasks.ingest import preview
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests.conftest import LIMITS, query_rows
from tests.tasks.ingest.conftest import write_file

ROWS = [f"k{n % 7};a{n};1,5;{n % 28 + 1}.3.2024;in den Korb" for n in range(56)]
SHOP = "\n".join(["Kdnr;Ware;Stück;Tag;Aktion", *ROWS, "k1;;1,5;1.3.2024;in den Korb", ""])
KINDS = "user_id,item_id,event\n" + "".join(f"u{n % 5},i{n},{('view', 'buy')[n % 3 == 0]}\n" for n in range(30))
NAMED = ["--user", "Kdnr", "--item", "Ware", "--value", "Stück", "--time", "Tag", "--event", "Aktion"]
DECLARED = """
title = "Küche"
events = {"in den Korb" = 2}
rules = {not_event = ["in den Korb"]}
models = {wmf = {factors = 8}}
"""


@pytest.fixture
def inspect(tmp_path, capsys):
    """Inspect a log in a home of its own; returns the status and what is printed."""

    def _inspect(text, *arguments):
        (path := tmp_path / "log.csv").write_text(text, encoding="utf-8")
        status = commands.main("inspect", ["--source", str(path), "--home", str(tmp_path / "var"), *arguments])
        printed = capsys.readouterr()
        return status, (printed.out + printed.err).replace(str(tmp_path), "")

    return _inspect


def test_an_unknown_log_is_answered_with_its_columns_and_no_proposal(inspect, tmp_path):
    status, shown = inspect(SHOP, "--write", "shop")
    assert status == 2 and not (tmp_path / "var").exists()
    assert (
        'log.csv, line 1: 57 lines looked at, 5 columns, delimiter ";". Which column is the user and which the item?'
        in shown
    )
    rows = [line.split() for line in shown.splitlines()]
    assert ["Kdnr", "text", "0%", "7", "k0,", "k1,", "k2"] in rows and ["Ware", "text", "2%", "56"] == rows[5][:4]
    assert "python -m flows.inspect --source /log.csv --user COLUMN --item COLUMN" in shown


def test_named_columns_show_events_and_losses_and_are_written_beside_what_a_file_declares(inspect, tmp_path):
    write_file(tmp_path / "var" / "datasets" / "shop.toml", DECLARED)
    before = datasets.load_dataset("shop", tmp_path / "var")
    for _ in range(2):
        status, shown = inspect(SHOP, *NAMED, "--write", "shop")
        assert status == 0, shown
        for part in ("user   <- Kdnr", "times as %d.%m.%Y", "56 events of 7 users and 56 items", "names no item"):
            assert part in shown
    after = datasets.load_dataset("shop", tmp_path / "var")
    named = {"user": ("Kdnr",), "item": ("Ware",), "value": ("Stück",), "time": ("Tag",), "event": ("Aktion",)}
    assert after.columns.model_dump() == named and after.binarize == {"threshold": 1.0}
    changed = {"columns", "binarize", "time_format"}
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    home = Home(tmp_path / "var", "shop", LIMITS)
    ingest(home, after.model_copy(update={"max_reject_share": 0.1}), [tmp_path / "log.csv"], "run")
    totals = "select count(*), sum(value), max(occurred_at)::varchar from raw.events"
    assert query_rows(home, totals) == [(56, 84.0, "2024-03-28 00:00:00")]


def test_kinds_are_listed_and_their_weights_left_to_a_person(inspect, tmp_path):
    status, shown = inspect(KINDS, "--write", "shop")
    assert status == 0 and "A run would refuse this" in shown and "view (20), buy (10)" in shown
    text = (path := tmp_path / "var" / "datasets" / "shop.toml").read_text()
    assert "events" not in tomllib.loads(text) and '# "buy" = WEIGHT' in text
    for kind, weight in (("buy", 3), ("view", 0)):
        text = text.replace(f'# "{kind}" = WEIGHT', f"{kind} = {weight}")
    path.write_text(text.replace("# [events]", "[events]"))
    status, shown = inspect(KINDS, "--dataset", "shop")
    assert status == 0 and "refuse" not in shown and "10  -20: of a kind with the weight 0" in shown


@pytest.mark.parametrize(
    ("text", "arguments", "part"),
    [
        ("user,item\n" + "".join(f"u{n},i{n}\n" for n in range(101)), [], "100 events of 100 users"),
        ("u1\t5\ti1\n", [], "--user N --item N"),
        ("user,item,rating\n" + "a,x,good\n" * 9, [], "value is not a number"),
        ("user,item,value\na,x,1\na,y,-2\n", [], "if they are returns, set binarize.sum_values"),
        ("user,item,price\na,x,1\na,y,2\n", [], "Is price, or another column, the value of an event?"),
        ("user,item,Tag,Uhr\na,x,2024-03-01,9:30\n", ["--time", "Tag", "Uhr"], "from 2024-03-01 09:30:00"),
        ("user,customer,item\na,x,1\n", [], "Which column is the user?"),
        ("user,sku\tnr,t\na,x,1551403697\n", [], "--item COLUMN --time COLUMN"),
        ("a,1551403697,x\nb,1551403698,y\n", [], "--user N --item N --time N"),
        ("a,2024-03-01,x\n", ["--user", "1", "--item", "3"], "column 2 may be the time, which is not read"),
        ("a,x,buy\na,x,view\n", ["--user", "1", "--item", "2", "--event", "3"], '# "view" = WEIGHT'),
        ("# by a tool\nuser,item,n\na,x,1\n", [], "line 2: looks like the header (user, item, n)"),
        ("user,item,ts\na,x,20190301012817\n", ["--time", "ts"], "from 2019-03-01 01:28:17"),
        ("user,item,n,what\na,x,1,buy\n", ["--event", "what"], '# "buy" = WEIGHT'),
        ("a\tx y z\nb\tx y z\n", [], "2 columns, delimiter"),
    ],
)
def test_what_is_said_and_asked(inspect, monkeypatch, text, arguments, part):
    monkeypatch.setattr(preview, "MAX_RECORDS", 100)
    assert part in inspect(text, *arguments)[1]
