"""A home and a log whose names DuckDB and Polars could take for patterns, beside files that these match."""

import json
import shutil

import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.flows.conftest import ML

RUN = [
    *ML,
    "--models",
    "popularity",
    "--protocols",
    "strong_generalization",
    "--threads",
    "1",
    "--set",
    "publish.min_size_ratio=0",
    "publish.margin=1e9",
]
LISTS = "select user_id, item_id, rank, score from published.recommendations order by 1, 3"


@pytest.mark.slow
def test_nights_lists_and_a_rollback_touch_no_file_that_a_name_matches(prefect_server, ratings, tmp_path, capsys):
    home, log = tmp_path / "a[1]*b", tmp_path / "r[1]*?.csv"
    place = ["--home", str(home)]
    shutil.copy(ratings, log)
    (tmp_path / "r1zz.csv").write_text("userId,movieId,rating,timestamp\nother,1,5,1\n")
    lists, stored = [], Home(home, "ml-latest-small")
    for liked in ("4", "5"):
        assert (
            commands.main("backfill", [*RUN, *place, "--source", str(log), "--set", f"binarize.threshold={liked}"]) == 0
        )
        lists.append(query_rows(stored, LISTS))
        matched = shutil.copytree(home, tmp_path / f"a1{liked}b", symlinks=True)
        for file in matched.glob("*/publications/*/**/*.parquet"):
            pl.read_parquet(file).clear().write_parquet(file)
    assert lists[0] and lists[0] != lists[1] and not any(user == "other" for user, *_ in lists[0])
    capsys.readouterr()
    for expected in (lists[1], lists[0]):
        user, items = expected[0][0], [item for user, item, *_ in expected if user == expected[0][0]]
        assert commands.main("recommend", [*ML, *place, "--user", user, "--n", str(len(items)), "--json"]) == 0
        assert [one["item_id"] for one in json.loads(capsys.readouterr().out)["items"]] == items
        if expected is lists[1]:
            assert commands.main("promote", [*ML, *place, "--rollback"]) == 0
            capsys.readouterr()
    assert query_rows(stored, LISTS) == lists[0]
    assert pl.read_parquet(stored.published / "recommendations.parquet", glob=False).height == len(lists[0])
