"""Other libraries' rows in a cited table, from files that the benchmark itself writes with models made of NumPy."""

import json
import re

import duckdb
import numpy as np
import polars as pl
import pytest
from optuna.distributions import FloatDistribution
from scipy.sparse import diags

from benchmarks.accuracy import libraries
from benchmarks.accuracy.competitors import LIBRARIES, Library
from oneclass.flows import commands
from tests.flows.conftest import ML

PROTOCOLS = ("leave_one_out", "strong_generalization")


def fit_popularity(train, threads, seed):
    """As many users as like an item."""
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    return lambda histories: np.tile(degrees, (histories.shape[0], 1))


def fit_neighbours(train, threads, seed, *, power):
    """Co-occurrences, divided by a power of the items' degrees."""
    if power > 1:
        raise ValueError("a power above 1")
    scale = diags(np.maximum(np.bincount(train.indices, minlength=train.shape[1]), 1.0) ** -power)
    similarity = (scale @ (train.T @ train) @ scale).tocsr()
    return lambda histories: (histories @ similarity).toarray()


def fit_libraries(home, protocol, folder):
    """Write the benchmark's file for two models, named by installed libraries that stand for those they come from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LIBRARIES, "scipy_popularity", Library("popularity", fit_popularity, {}, {}))
        space = {"power": FloatDistribution(0, 2)}
        patch.setitem(LIBRARIES, "numpy_neighbours", Library("item_knn", fit_neighbours, {"power": 0.5}, space))
        options = ["--home", str(home), "--log", "ml-latest-small", "--protocol", protocol, "--threads", "1"]
        models = ["--libraries", "scipy_popularity", "numpy_neighbours", "--trials", "6"]
        libraries.main(["--out", str(folder), *options, *models])
    return folder / "ml-latest-small.json"


@pytest.fixture(scope="module")
def written(first, tmp_path_factory):
    """The file of each protocol."""
    return [fit_libraries(first[0], protocol, tmp_path_factory.mktemp("libraries")) for protocol in PROTOCOLS]


def run_cite(home, *arguments, status=0):
    assert commands.main("cite", [*ML, "--home", str(home), *arguments]) == status


@pytest.fixture(scope="module")
def cited(first, written, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cited") / "table"
    run_cite(first[0], "--out", str(folder), "--libraries", *map(str, written))
    return folder


@pytest.fixture(scope="module")
def plain(first, tmp_path_factory):
    """The folder without libraries."""
    folder = tmp_path_factory.mktemp("plain") / "table"
    run_cite(first[0], "--out", str(folder))
    return folder


@pytest.mark.parametrize("place", [0, 1])
def test_their_values_are_means_over_the_users_of_the_file(cited, written, place):
    table = pl.read_csv(cited / "table.csv").filter(protocol=PROTOCOLS[place])
    for row in json.loads(written[place].read_text())["rows"]:
        for metric, values in row["of_users"].items():
            found = table.filter(model=row["name"], metric=metric).row(0, named=True)
            assert found["value"] == pytest.approx(np.mean(values)) and found["users"] == len(values)
            assert found["standard_error"] == pytest.approx(np.std(values) / len(values) ** 0.5)
    if PROTOCOLS[place] == "leave_one_out":
        values = json.loads(written[place].read_text())["rows"][0]["of_users"]["mean_rank"]
        median = table.filter(model="scipy_popularity", metric="median_rank")["value"].item()
        assert median == pytest.approx(np.median(values))


def test_the_runs_own_values_stay(cited, plain):
    is_library = pl.col("model").is_in(["scipy_popularity", "numpy_neighbours"])
    for name in ("table.csv", "metrics.csv"):
        columns = ["protocol", "model", "score", "metric", "value", "standard_error", "users"]
        found = pl.read_csv(cited / name).filter(~is_library).select(columns).sort(columns[:4])
        assert found.equals(pl.read_csv(plain / name).select(columns).sort(columns[:4]))


def test_a_row_equal_to_ours_differs_by_nothing(cited):
    pairs = pl.read_csv(cited / "comparisons.csv")
    same = pairs.filter(model="popularity", other_model="scipy_popularity")
    assert same.group_by("protocol").len().height == 2 and same["p_value"].to_list() == [1.0] * same.height
    assert same["difference"].to_list() == [0.0] * same.height


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_marks_are_corrected_over_all_rows(cited, protocol):
    """Holm's procedure over m lists, with m - 1 times the one-sided p-value against the best, step by step."""
    table = pl.read_csv(cited / "table.csv").filter(pl.col("standing").is_not_null(), protocol=protocol)
    assert {"scipy_popularity", "numpy_neighbours", "popularity", "mrf_dense"} <= {*table["model"]}
    best, *others = table.sort("value", descending=True, maintain_order=True).iter_rows(named=True)
    assert best["standing"] == "best" and {row["standing"] for row in others} <= {"level", "worse"}
    pairs = pl.read_csv(cited / "comparisons.csv").filter(protocol=protocol, metric=best["metric"])
    plain = {}
    for row in pairs.iter_rows(named=True):
        plain[row["model"], row["other_model"]] = plain[row["other_model"], row["model"]] = row["p_value"]
    ordered = sorted(others, key=lambda row: plain[best["model"], row["model"]])
    largest = 0.0
    for i, row in enumerate(ordered):
        largest = max(largest, (len(table) - i) * plain[best["model"], row["model"]] * (len(table) - 1) / 2)
        assert row["corrected_p_value"] == pytest.approx(min(largest, 1))
        assert row["standing"] == ("worse" if largest < 0.05 else "level")
        assert row["difference_from_best"] == pytest.approx(row["value"] - best["value"])


def test_their_spaces_settings_and_trials_are_there(cited, written):
    rows = {row["model"]: row for row in json.loads((cited / "rows.json").read_text())}
    found = rows["numpy_neighbours"]
    assert found["library"].startswith("numpy ") and found["title"] == fit_neighbours.__doc__
    assert list(found["search"]["space"]) == ["power"] and found["search"]["trials"] == 6
    assert found["fits"][0]["machine"]["used_cores"] == 1
    trials = pl.read_csv(cited / "trials.csv").filter(model="numpy_neighbours")
    assert trials.height == 12 and trials["number"].to_list() == [*range(1, 7)] * 2
    assert json.loads(trials["settings"][0]) == {"power": 0.5}
    failed = trials.filter(state="failed")
    assert (
        failed.height and set(failed["note"]) == {"a power above 1"} and failed["value"].null_count() == failed.height
    )
    last = trials[6:]
    assert last["value"].max() == json.loads(written[1].read_text())["rows"][1]["validation"]
    assert "numpy_neighbours 6" in (cited / "checklist.md").read_text()


def test_the_folder_itself_has_what_prints_the_table_again(first, cited, tmp_path):
    script = (cited / "reprint.sh").read_text()
    names = [f"libraries_{protocol}.json" for protocol in PROTOCOLS]
    assert "--libraries " + " ".join(f'"$folder/{name}"' for name in names) in script
    run_cite(first[0], "--out", str(tmp_path / "again"), "--libraries", *(str(cited / name) for name in names))
    for name in ("table.md", "table.tex", "table.csv", "metrics.csv", "comparisons.csv", "trials.csv", "rows.json"):
        assert (tmp_path / "again" / name).read_bytes() == (cited / name).read_bytes()


@pytest.mark.slow
def test_on_folds_a_row_is_over_the_users_of_all(prefect_server, ratings, tmp_path):
    home, folded = str(tmp_path / "home"), ["--set", "split.min_validation_users=1000", "mrf_dense.l2=6.0"]
    chosen = ["--models", "popularity,mrf_dense", "--protocols", "strong_generalization", "--threads", "2"]
    assert commands.main("backfill", [*ML, "--home", home, "--source", str(ratings), *chosen, *folded]) == 0
    file = fit_libraries(home, "strong_generalization", tmp_path / "libraries")
    assert len(json.loads(file.read_text())["splits"]) == 5
    run_cite(home, "--out", str(tmp_path / "table"), "--libraries", str(file))
    table = pl.read_csv(tmp_path / "table" / "table.csv").filter(metric="ndcg@100")
    assert {*table["model"]} == {"popularity", "mrf_dense", "scipy_popularity", "numpy_neighbours"}
    assert table["users"].n_unique() == 1 and table["users"][0] > 100
    ours, same = (table.filter(model=name).row(0, named=True) for name in ("popularity", "scipy_popularity"))
    assert (ours["value"], ours["standard_error"]) == pytest.approx((same["value"], same["standard_error"]))
    pairs = pl.read_csv(tmp_path / "table" / "comparisons.csv").filter(
        model="popularity", other_model="scipy_popularity"
    )
    assert {*pairs["p_value"]} == {1.0}
    assert "users in 5 folds" in (tmp_path / "table" / "table.md").read_text()


def shorten_table(table):
    for row in table["rows"]:
        row["of_users"] = {metric: values[1:] for metric, values in row["of_users"].items()}


CHANGES = {
    "a split of other edges": (
        lambda table: table.update(splits=["0123456789abcdef"]),
        r"of the split 0123456789abcdef of leave_one_out \(120 test users\), and run .* --home .* --log ml-latest",
    ),
    "other users": (shorten_table, r"scipy_popularity has mean_rank of 119 test users, and run .* has 120"),
    "a metric less": (
        lambda table: table["rows"][1]["of_users"].pop("mean_rank_midtie"),
        "numpy_neighbours lacks mean_rank_midtie",
    ),
    "a name of the run": (
        lambda table: table["rows"][0].update(name="mrf_dense"),
        "the table of leave_one_out has a row mrf_dense already",
    ),
    "another log": (lambda table: table.update(log="ml-1m"), "is of the data set ml-1m, the run of ml-latest-small"),
    "another protocol": (
        lambda table: table.update(protocol="next_events"),
        "is of next_events, and run .* has strong_generalization, leave_one_out",
    ),
    "only our models": (
        lambda table: [row.update(origin="oneclass 0.2.0") for row in table["rows"]],
        "has no row of a library",
    ),
    "no trials": (lambda table: table["rows"][0].pop("of_trials"), r"rows\.0\.of_trials: Field required"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_rows_that_are_not_of_the_runs_users_are_refused(first, written, tmp_path, capsys, what):
    change, message = CHANGES[what]
    table = json.loads(written[0].read_text())
    change(table)
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(table))
    run_cite(first[0], "--out", str(tmp_path / "table"), "--libraries", str(file), status=2)
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (tmp_path / "table").exists()


def test_two_files_of_a_protocol_and_an_absent_one_are_refused(first, written, tmp_path, capsys):
    run_cite(first[0], "--libraries", str(written[0]), str(written[0]), status=2)
    assert "several files are of leave_one_out" in capsys.readouterr().err
    run_cite(first[0], "--libraries", str(tmp_path / "none.json"), status=2)
    assert "none.json: cannot be read (No such file" in capsys.readouterr().err


def test_a_table_that_the_stored_fits_do_not_make_gets_no_rows(after_first, written, tmp_path, capsys):
    with duckdb.connect(str(after_first / "ml-latest-small" / "warehouse.duckdb")) as connection:
        connection.execute("update evaluation.metrics set value = value + 0.01 where model = 'mrf_dense'")
    run_cite(after_first, "--out", str(tmp_path / "table"), "--libraries", str(written[0]), status=1)
    assert "mrf_dense/score of run" in capsys.readouterr().err


def test_libraries_are_fitted_on_a_run_that_has_the_protocol(first, tmp_path):
    options = ["--out", str(tmp_path), "--home", str(first[0]), "--log", "ml-latest-small", "--libraries"]
    with pytest.raises(SystemExit, match="--run nothing: ml-latest-small has no such evaluated run"):
        libraries.main([*options, "--run", "nothing"])
