"""Train and publish on a small log: which models fit into memory, the store, and what readers see."""

import shutil

import duckdb
import numpy as np
import pytest
from scipy.stats import ttest_rel

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks import capacity
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import recommend_all
from oneclass.tasks.publish.choice import ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.tuning.validation import evaluate_model
from tests.conftest import execute_statement, home_in, query_rows, two_tastes
from tests.tasks.conftest import copy_of, fit_models, publish_fit, split_likes, train_model
from tests.tasks.test_new_items import describe_items, split_all

LISTS = "from published.recommendations order by all"


@pytest.fixture(scope="module")
def published_once(splits_once, tmp_path_factory):
    """(home, digests) after one run that published."""
    home, digests = home_in(tmp_path_factory.mktemp("published")), splits_once[1]
    shutil.copytree(splits_once[0].root, home.root)
    evaluate_and_publish(home, digests, "run")
    return home, digests


digests, after_publishing = copy_of("splits_once"), copy_of("published_once")


def publish_fitted(home, digests, run_id="next", **settings):
    fit = train_model(home, digests[ALL_EDGES], "mrf_dense", run_id=run_id).digest
    publish_fit(home, run_id, PublishSettings(**settings), "mrf_dense", "score", fit, digests[ALL_EDGES])


def evaluate_and_publish(home, digests, run_id):
    models = {model: MODELS[model].Settings() for model in ("popularity", "mrf_dense")}
    for protocol in ("strong_generalization", "leave_one_out"):
        fitted = fit_models(home, digests[protocol], models, protocol=protocol, run_id=run_id)
        evaluate(home, run_id, protocol, [fitted])
    publish_fitted(home, digests, run_id, top_n=5)


def test_a_fit_with_an_entry_that_is_not_finite_is_not_stored(home, digests, monkeypatch):
    save = MODELS["mrf_dense"].save

    def diverge(self, folder):
        self.weights.flat[3] = np.nan
        save(self, folder)

    monkeypatch.setattr(MODELS["mrf_dense"], "save", diverge)
    with pytest.raises(OneclassError, match="mrf_dense: the fit has diverged: 1 of 1,600 entries of weights are NaN"):
        train_model(home, digests[ALL_EDGES], "mrf_dense")
    assert not list(home.models.glob("mrf_dense/*")) and not query_rows(home, "from operations.model_fits")


def test_without_validation_users_popularity_is_published_and_said(home, digests, caplog):
    models = ["mrf_dense", "popularity"]
    assert choose_model(home, "no run", PublishSettings(), models, None) == ChosenModel("popularity", "score")
    assert "publish.model" in caplog.text


def test_a_failed_publish_leaves_what_was_published(home, after_publishing, monkeypatch):
    target, before = home.published.resolve(), query_rows(home, LISTS)
    monkeypatch.setattr("oneclass.tasks.publish.stage.leaderboard.format_markdown", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish_fitted(home, after_publishing, top_n=4)
    assert home.published.resolve() == target
    assert query_rows(home, LISTS) == before


def test_where_nothing_is_new_lists_stay_and_files_have_the_same_bytes(home, after_publishing, monkeypatch, caplog):
    before, lists = home.published.resolve(), query_rows(home, LISTS)
    with warehouse.open_warehouse(home) as connection:  # a rollback fills the table in another order
        connection.execute("create temp table filled as from published.recommendations order by user_id desc")
        connection.execute("delete from published.recommendations")
        connection.execute("insert into published.recommendations from filled")
    monkeypatch.setattr(recommend_all, "imap", lambda *_, **__: 1 / 0)  # no list is made anew
    evaluate_and_publish(home, after_publishing, "next")
    assert "published.exploration stay as they are" in caplog.text
    after = home.published.resolve()
    assert after.name == "next" and query_rows(home, LISTS) == lists
    assert tables_of(after) == tables_of(before) and len(tables_of(after)) == 8
    for name in ("recommendations.parquet", "lists.parquet", "evaluation.parquet", "evaluation.csv", "evaluation.md"):
        assert (after / name).read_bytes() == (before / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ("update published.recommendations set score = score + 1", 5),
        ("select 'a shorter list'", 4),
        ("insert into raw.events by name (from raw.events limit 1)", 5),  # the lists stay, but not who has how many
    ],
)
def test_lists_are_made_anew_where_what_they_are_made_from_has_changed(
    home, after_publishing, change, count, monkeypatch
):
    made, whole = [], recommend_all.imap
    monkeypatch.setattr(recommend_all, "imap", lambda *given, **named: made.append(1) or whole(*given, **named))
    execute_statement(home, change)
    binarize(home, BinarizeSettings(), "next")
    publish_fitted(home, after_publishing, top_n=count)
    assert len(made) == ("raw.events" not in change)
    found = tables_of(home.published.resolve())
    assert len(found["recommendations"]) == 60 * count == len(query_rows(home, "from published.recommendations"))
    events = query_rows(home, "select count(*) from raw.events")[0][0]
    assert sum(count for _, _, count in found["users"]) == events


def tables_of(folder):
    with duckdb.connect(str(folder / "published.duckdb"), read_only=True) as connection:
        names = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
        return {name: connection.execute(f"from {name} order by all").fetchall() for name in names}


DEFAULTS = {name: MODELS[name].Settings() for name in Dataset(name="any").default_models}
SHOP = LogSize(166_666, 195_795, 1_850_000, 50_000_000)
GB = 10**9


@pytest.mark.parametrize(
    ("log", "left_out"),
    [
        (LogSize(6_040, 3_533, 575_281, 5_000_000), set()),
        (LogSize(100_000, 45_000, 600_000, 30_000_000), {"slist", "mrf_dense"}),
        (LogSize(138_000, 45_000, 20_000_000, 10**9), set()),  # all the others take longer yet
        (LogSize(3_000, 45_000, 200_000, 30_000_000), {"slist"}),  # mrf_dense is inverted over the users
    ],
)
def test_a_model_that_takes_longer_than_all_others_together_is_left_out(log, left_out):
    reasons = capacity.find_large_models(DEFAULTS, [log], 64 * GB)
    assert set(reasons) == left_out
    assert all("CPU minutes, and those of all other models together" in reason for reason in reasons.values())


def test_a_model_that_needs_more_memory_than_there_is_is_left_out_or_refused_by_name():
    reasons = capacity.find_large_models(DEFAULTS, [SHOP], 20 * GB)
    assert reasons.keys() == {"mrf_dense", "slist"}
    assert "a fit on 195,795 items needs about 308.0 GB of memory, and 20.0 GB are free" in reasons["mrf_dense"]
    vectors = {"graph_filter": MODELS["graph_filter"].Settings(vectors=20_000)}
    for models, message in (
        (DEFAULTS, r"^mrf_dense: .* Leave it out of --models, .* or take item_knn, sansa or mrf_sparse in its"),
        (vectors, r"^graph_filter: .* or lower graph_filter.vectors\.$"),
    ):
        with pytest.raises(InputError, match=message):
            capacity.refuse_large_models(models, [SHOP], 20 * GB)
    capacity.refuse_large_models({"graph_filter": DEFAULTS["graph_filter"]}, [SHOP], 20 * GB)


def test_models_surely_below_the_best_by_paired_tests_need_no_more_fits(home, monkeypatch):
    two_tastes(home, users=240)
    [(fitted_by, split), *_] = split_likes(home, "strong_generalization", held_out_users=60).items()
    models = {name: MODELS[name].Settings() for name in ("popularity", "mrf_dense", "wmf", "bpr_uniform")}
    fitted = fit_models(home, split, {**models, "hpf": MODELS["hpf"].Settings(factors=1)})
    part = matrices.load_split(home, split).parts["validation"]
    loaded = {name: fits.load_fit(home, name, digest) for name, digest in fitted[1].items()}
    values = {name: evaluate_model([model], [part], "ndcg@100")[0] for name, model in loaded.items()}
    best = max(values, key=lambda name: values[name].mean())
    # Each p-value times 4 / 2 (Hsu), then Holm's procedure over 5 hypotheses; hpf's is the second.
    p_values = {name: 2 * ttest_rel(of, values[best]).pvalue for name, of in values.items() if name != best}
    assert sorted(p_values, key=p_values.get)[:2] == ["popularity", "hpf"]
    bound = max(5 * p_values["popularity"], 4 * p_values["hpf"])

    def find_models_behind(alpha=1.001 * bound, **publish):
        monkeypatch.setattr(capacity, "ALPHA", alpha)
        return capacity.find_models_behind(home, "run", fitted_by, [fitted], PublishSettings(**publish))

    assert find_models_behind() == ["hpf"] and not find_models_behind(0.999 * bound)  # popularity is the baseline
    assert not find_models_behind(model="hpf") and not find_models_behind(companion="hpf")
    monkeypatch.setattr(capacity, "has_like", "hpf".__eq__)
    assert not find_models_behind()  # it says how sure lists are


def test_items_of_the_attribute_table_count_for_the_fit_that_is_published(home, tmp_path):
    two_tastes(home)
    describe_items(home, tmp_path, [(f"n{item}", str(item % 2), item) for item in range(400)])
    digests = split_all(home)
    logs = capacity.measure_logs(home, digests.values())
    columns = {name: matrices.load_split(home, digest).train.shape[1] for name, digest in digests.items()}
    assert columns[ALL_EDGES] == columns["leave_one_out"] + 400
    assert {log.items for log in logs} == set(columns.values())
    (dense,) = capacity.find_large_models({"mrf_dense": DEFAULTS["mrf_dense"]}, logs, 57 * 10**6).values()
    assert f"a fit on {columns[ALL_EDGES]:,} items" in dense
