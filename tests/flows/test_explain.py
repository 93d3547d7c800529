"""Explanations of a user from a small warehouse: tables read, fold-in, and errors."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from oneclass.flows import commands
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.explain import views
from oneclass.tasks.explain.explanation import Explanation, explain_user
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import runs, warehouse
from tests.conftest import home_in, log_into, query_rows, two_tastes
from tests.tasks.conftest import copy_of, publish_fit, split_likes, train_model
from tests.tasks.serve.test_list_routes import Asker


def log_of_two_tastes(home):
    """60 users of two tastes, and one dislike, of a data set with a file."""
    (home.root / "datasets").mkdir(parents=True)
    (home.root / "datasets" / "small.toml").write_text('title = "A small log"\n')
    two_tastes(home)
    log_into(home, [("grump", "i1", 0)], file_id=9)


def record_run(home):
    """Fit and evaluate popularity in one completed run; the digests of the splits."""
    with runs.record_run(home, "run", "backfill", {}):
        digests = split_likes(home, "leave_one_out")
        fit = train_model(home, digests["leave_one_out"], "popularity", protocol="leave_one_out")
        evaluate(home, "run", "leave_one_out", [(digests["leave_one_out"], {"popularity": fit.digest})])
        publish(home, "run", PublicationPlan())
    return digests


def publish_weights(home, digests):
    """Publish the lists of mrf_dense and return the digest of its fit."""
    fit = train_model(home, digests[ALL_EDGES], "mrf_dense", MODELS["mrf_dense"].Settings(l2=2.0)).digest
    publish_fit(home, "run", PublishSettings(), "mrf_dense", "score", fit, digests[ALL_EDGES])
    return fit


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """A home with one run, and the digests of the splits; for tests that only read."""
    home = home_in(tmp_path_factory.mktemp("explained"))
    log_of_two_tastes(home)
    return home, record_run(home)


digests = copy_of("explained")


def list_files(home):
    return {file: file.stat().st_mtime_ns for file in home.folder.rglob("*") if file.is_file()}


def test_the_history_and_the_published_list_are_shown_with_titles_and_reasons(home, digests):
    fit = publish_weights(home, digests)
    found = explain_user(home, "u7", top=3)
    liked = {item for (item,) in query_rows(home, "select item_id from curated.interactions where user_id = 'u7'")}
    assert {one["item_id"] for one in found.history} == liked and found.published.model == "mrf_dense"
    assert "no user in small likes it" in explain_user(home, "u7", item_ids=["no such item"]).rank_explanations[0]
    listed = "select item_id from published.recommendations where user_id = 'u7' and rank <= 3 order by rank"
    assert [(one["item_id"],) for one in found.published.items] == query_rows(home, listed)
    weights = np.load(home.models / "mrf_dense" / fit / "weights.npy")
    index = dict(query_rows(home, "select item_id, item_index from indexed.items"))
    for item in found.published.items:
        largest = np.sort(weights[[index[one] for one in liked], index[item["item_id"]]])[::-1][:3]
        np.testing.assert_array_equal([value for _, value in item["because"]], largest[largest > 0])


def test_an_explanation_is_of_what_is_published_and_waits_for_no_run(home, digests):
    before = explain_user(home, "u7")
    assert len(before.history) == len(query_rows(home, "select 1 from curated.interactions where user_id = 'u7'"))
    binarize(home, BinarizeSettings(threshold=0), "next")  # a run that goes on
    with warehouse.open_warehouse(home):
        assert explain_user(home, "u7") == before


def test_the_command_writes_its_page_only(home, digests, capsys):
    before = list_files(home)
    arguments = ["--dataset", "small", "--home", str(home.root), "--user"]
    assert commands.main("explain", [*arguments, "u7"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"User u7 of small likes \d+ items", printed)
    page = home.report / "users" / "u7.html"
    assert str(page) in printed and list_files(home).items() - before.items() == {(page, page.stat().st_mtime_ns)}
    text = page.read_text()
    assert "nothing is recommended" in text and "://" not in text and "<script" not in text
    for user, message in (("nobody", "no such user in small"), ("grump", "none of them is kept as a like")):
        assert commands.main("explain", [*arguments, user]) == 2
        assert f"--user {user}: " in (said := capsys.readouterr().err) and message in said


@pytest.mark.slow
def test_ids_and_titles_give_no_orders_to_a_terminal_and_load_nothing(home, log_events, capsys):
    log_of_two_tastes(home)
    user, item = "\x1b]0;title\x07\n\u202e<img src=//x>", "i1\x1b[2J"
    log_events([(user, item, 5), (user, "i2", 5), (user, "i3\nnext", 5), ("other\x1b", "i1", 0)], file_id=2)
    record_run(home)
    arguments = ["--dataset", "small", "--home", str(home.root)]
    assert commands.main("explain", [*arguments, "--n", "1000000000", "--user", user]) == 0
    explanation = replace(explain_user(home, user), titles={item: "\x1b[31mRed"})
    printed = capsys.readouterr().out + views.format_explanation(explanation)
    views.write_user_page(home, explanation)
    assert r"User \x1b]0;title\x07\n\u202e<img src=//x> of small likes" in printed
    assert r"i1\x1b[2J" in printed and r"\x1b[31mRed" in printed and r"i3\nnext" in printed
    for unknown in ("no\x1b[2Jbody", "other\x1b", "\udcff"):
        assert commands.main("explain", [*arguments, "--user", unknown]) == 2
        printed += capsys.readouterr().err
    assert r"--user no\x1b[2Jbody: no such user" in printed and r"--user \udcff: is not UTF-8 text" in printed
    assert printed.isascii() or not set(printed) & set("\x1b\x07\u202e")
    [page] = (home.report / "users").iterdir()
    text = page.read_text()
    assert "default-src 'none'" in text and "<img" not in text and not set(text) & set("\x1b\x07\u202e")


@pytest.mark.slow
def test_ids_of_any_form_can_be_asked_for(home, log_events, capsys):
    """Blanks around an id that is asked for do not count, as in logs."""
    log_of_two_tastes(home)
    user, items = 'O\'Neil, "Jo" & co', ["Tea, green", 'a 12" disc', "it's; 50 %", " kept with blanks "]
    log_events([(user, item, 5) for item in items] + [("u1", item, 5) for item in items], file_id=2)
    publish_weights(home, record_run(home))
    for item in items:
        said = f"{item}: is not recommended to {user}: they like it"
        assert said in explain_user(home, f" {user} ", item_ids=[item.strip()]).rank_explanations[0]
    padded, arguments = [f"  {item}" for item in items], ["--dataset", "small", "--home", str(home.root)]
    assert commands.main("recommend", [*arguments, "--item", *padded[:2], "--n", "44", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["unknown"] == [] and {row["item_id"] for row in answer["items"]} >= {*items[2:], "i1"}
    ask = Asker(home)
    assert ask("GET", "/recommend", params={"user": f"{user} "}).json()["items"]
    answer = ask("GET", "/recommend", params={"item": padded, "within": [items[0], "i1"]}).json()
    assert answer["unknown"] == [] and [row["item_id"] for row in answer["items"]] == ["i1"]


@pytest.mark.parametrize("user", ["../../x", "a/b", ".", "..", "x" * 400, "naïve <b>", "%2E"])
def test_any_user_has_a_page_in_the_folder_of_users(home, user):
    page = views.write_user_page(home, Explanation("small", user, []))
    assert page.parent == home.report / "users" and list(page.parent.iterdir()) == [page]
    assert "<b>" not in page.read_text()
