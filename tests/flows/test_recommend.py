"""The command `flows.recommend` and what `flows.explain` says of the published list, on the first run's home."""

import json
import re

import polars as pl
import pytest

import oneclass
from oneclass.flows import commands

ML = ["--dataset", "ml-latest-small"]


@pytest.fixture(scope="module")
def asked(first):
    """The arguments that every command takes, and the published lists of the user 7, best first."""
    lists = pl.read_parquet(first[0] / "ml-latest-small" / "published" / "recommendations.parquet")
    return [*ML, "--home", str(first[0])], lists.filter(pl.col("user_id") == "7").sort("rank")


def test_a_user_gets_the_published_list(asked, capsys):
    arguments, expected = asked
    assert commands.main("recommend", [*arguments, "--user", "7", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["item_id"] for row in answer["items"]] == expected["item_id"].to_list()
    assert answer["model"] and answer["publication"] and answer["unknown"] == []
    assert commands.main("recommend", [*arguments, "--user", "7", "--n", "2"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^ +1 +{expected['item_id'][0]} ", printed, flags=re.MULTILINE)
    assert re.search(rf"^ +2 +{expected['item_id'][1]} ", printed, flags=re.MULTILINE)


def test_a_history_of_known_and_unknown_items_is_answered(asked, capsys):
    arguments, _ = asked
    given = ["--item", "1", "3", "--item", "no such film", "--n", "3"]
    assert commands.main("recommend", [*arguments, *given, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["unknown"] == ["no such film"]
    assert len(answer["items"]) == 3 and not {row["item_id"] for row in answer["items"]} & {"1", "3"}
    assert commands.main("recommend", [*arguments, *given]) == 0
    assert "Not known, left out: no such film" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--user", "nobody"], "user nobody: is not among the"),
        (["--user", "7", "--item", "1"], "--user, --item and --list: give one of them"),
        ([], "--user, --item and --list: give one of them"),
        (["--user", "7", "--n", "0"], "Must be >= 1"),
        (["--user", "7", "--dataset", "ml-latest-smal"], "unknown. Did you mean ml-latest-small?"),
        (
            ["--user", "7", "--dataset", "demo"],
            "nothing is published yet. Run `python -m flows.backfill --dataset demo`",
        ),
    ],
)
def test_unanswerable_requests_are_reported(asked, capsys, given, message):
    assert commands.main("recommend", [*asked[0], *given]) == 2
    assert message in capsys.readouterr().err


def test_an_explanation_begins_with_the_published_list(after_first, asked, capsys):
    _, expected = asked
    arguments = [*ML, "--home", str(after_first), "--user", "7"]
    assert commands.main("explain", [*arguments, "--n", "4"]) == 0
    printed = capsys.readouterr().out
    published = printed.split("Published: ")[1].split("\n\n")[1]
    assert re.findall(r"^ +\d+ +(\S+)", published, flags=re.MULTILINE) == expected["item_id"][:4].to_list()
    assert "Published</span>" in (after_first / "ml-latest-small" / "report" / "users" / "7.html").read_text()


def test_an_item_that_is_not_in_the_list_is_explained(after_first, asked, capsys):
    _, expected = asked
    arguments = [*ML, "--home", str(after_first), "--user", "7", "--n", "4", "--item"]

    def said(item):
        assert commands.main("explain", [*arguments, item]) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{item}: "))

    shop = oneclass.load(after_first, "ml-latest-small")
    lists = pl.read_parquet(after_first / "ml-latest-small" / "published" / "recommendations.parquet")
    count = lists.filter(pl.col("user_id") == "7").height
    best, next_one = expected["item_id"][0], shop.recommend_for("7", n=count + 1)["item_id"][-1]
    assert f"{best}: rank 1 of " in said(best) and "of the last of" not in said(best)
    assert f"{next_one}: rank {count + 1} of " in said(next_one) and f"last of the {count} published" in said(next_one)
    assert "is not recommended to 7: they like it already, and the items of" in said(shop.history("7")[0])
    assert "no user in ml-latest-small likes it" in said("no-such-film")
