"""`flows.inspect`: what a person needs to see before a run, and the data set's file."""

import tomllib

import pytest

from oneclass.flows import commands
from oneclass.tasks import datasets
from oneclass.tasks.ingest import preview
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests.conftest import LIMITS, query_rows

SHOP = (
    "Kdnr;Ware;Stück;Tag\n"
    + "".join(f"k{n % 7};a{n};1,5;{n % 28 + 1}.3.2024\n" for n in range(56))
    + "k1;;1,5;1.3.2024\n"
)
KINDS = "user_id,item_id,event\n" + "".join(f"u{n % 5},i{n},{('view', 'buy')[n % 3 == 0]}\n" for n in range(30))
NAMED = ["--user", "Kdnr", "--item", "Ware", "--value", "Stück", "--time", "Tag"]


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
    assert 'log.csv, line 1: 57 lines, 4 columns, delimiter ";". Which column is the user and which the item?' in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["Kdnr", "text", "0%", "7", "k0,", "k1,", "k2"] in rows and ["Ware", "text", "2%", "56"] == rows[5][:4]
    assert "python -m flows.inspect --source /log.csv --user COLUMN --item COLUMN" in shown


def test_named_columns_show_events_losses_and_the_whole_file(inspect, tmp_path):
    status, shown = inspect(SHOP, *NAMED, "--write", "shop")
    assert status == 0
    for part in ("user   <- Kdnr", "times as %d.%m.%Y", "56 events of 7 users and 56 items", "names no item"):
        assert part in shown
    declared = tomllib.loads((tmp_path / "var" / "datasets" / "shop.toml").read_text(encoding="utf-8"))
    named = {"user": ["Kdnr"], "item": ["Ware"], "value": ["Stück"], "time": ["Tag"]}
    assert declared["columns"] == named and declared["binarize"] == {"threshold": 1.0}
    home = Home(tmp_path / "var", "shop", LIMITS)
    loose = datasets.load_dataset("shop", home.root).model_copy(update={"max_reject_share": 0.1})
    ingest(home, loose, [tmp_path / "log.csv"], "run")
    assert query_rows(home, "select count(*), sum(value), max(occurred_at)::varchar from raw.events") == [
        (56, 84.0, "2024-03-28 00:00:00")
    ]


def test_writing_anew_keeps_what_a_file_declares(inspect, tmp_path):
    (folder := tmp_path / "var" / "datasets").mkdir(parents=True)
    (folder / "shop.toml").write_text(
        'title = "Küche"\n[events]\n"in den Korb" = 2\n[rules]\nnot_event = ["in den Korb"]\n'
        "[models.wmf]\nfactors = 8\n",
        encoding="utf-8",
    )
    before = datasets.load_dataset("shop", tmp_path / "var")
    text = "Kdnr,Ware,Aktion\n" + "k1,a1,in den Korb\n" * 3
    for _ in range(2):
        status, shown = inspect(text, "--user", "Kdnr", "--item", "Ware", "--event", "Aktion", "--write", "shop")
        assert status == 0, shown
    after = datasets.load_dataset("shop", tmp_path / "var")
    changed = {"columns", "binarize"}
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    assert after.columns.event == ("Aktion",)


def test_kinds_are_listed_and_their_weights_left_to_a_person(inspect, tmp_path):
    status, shown = inspect(KINDS, "--write", "shop")
    assert status == 0 and "A run would refuse this" in shown and "view (20), buy (10)" in shown
    text = (path := tmp_path / "var" / "datasets" / "shop.toml").read_text()
    assert "events" not in tomllib.loads(text) and '# "buy" = WEIGHT' in text
    stated = (
        text.replace("# [events]", "[events]")
        .replace('# "buy" = WEIGHT', "buy = 3")
        .replace('# "view" = WEIGHT', "view = 0")
    )
    path.write_text(stated)
    status, shown = inspect(KINDS, "--dataset", "shop")
    assert status == 0 and "refuse" not in shown and "10  -20: of a kind with the weight 0" in shown


@pytest.mark.parametrize(
    ("text", "arguments", "part"),
    [
        ("1,2,x\n3,4,y\n", ["--user", "1", "--item", "2"], "2 events of 2 users"),
        ("u1\t5\ti1\n", [], "--user N --item N"),
        ("user,item,rating\n" + "a,x,good\n" * 9, [], "value is not a number"),
        ("user,item,value\na,x,1\na,y,-2\n", [], "if they are returns, set binarize.sum_values"),
        ("user,item,price\na,x,1\na,y,2\n", [], "Is price, or another column, the value of an event?"),
        ("user,item,price\na,x,1\na,y,2\n", ["--value", "-"], "2 events of 1 users and 2 items"),
        ("user,item,Tag,Uhr\na,x,2024-03-01,9:30\n", ["--time", "Tag", "Uhr"], "from 2024-03-01 09:30:00"),
        ("user,customer,item\na,x,1\n", [], "Which column is the user?"),
        ("user,item\na,x\n", ["--user", "who"], "None is called who"),
    ],
)
def test_what_is_said_and_asked(inspect, text, arguments, part):
    assert part in inspect(text, *arguments)[1]


def test_of_a_large_log_the_beginning_is_read(inspect, monkeypatch):
    monkeypatch.setattr(preview, "MAX_RECORDS", 100)
    _, shown = inspect("user,item\n" + "".join(f"u{n},i{n}\n" for n in range(1000)))
    assert "100 events of 100 users" in shown and "the first 100 records" in shown
