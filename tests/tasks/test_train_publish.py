"""Train and publish on a small log: which models fit into memory, the store, and what readers see."""

import json
import shutil
from importlib.util import find_spec

import duckdb
import numpy as np
import pytest

from oneclass.models.autoencoders.networks import MultDAE
from oneclass.models.fit_options import FitOptions, ValidationUsers
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
from oneclass.tasks.stores import fits, matrices, runs, warehouse
from tests.conftest import home_in, query_rows, two_tastes
from tests.processes import inflate_cost
from tests.tasks.conftest import copy_of, fit_models, publish_fit, train_model
from tests.tasks.test_new_items import describe_items, split_all

PROTOCOL = "leave_one_out"


@pytest.fixture(scope="module")
def published_once(splits_once, tmp_path_factory):
    """(home, digests) after one run that published."""
    home, digests = home_in(tmp_path_factory.mktemp("published")), splits_once[1]
    shutil.copytree(splits_once[0].root, home.root)
    choose_and_publish(home, digests, top_n=5)
    return home, digests


digests, after_publishing = copy_of("splits_once"), copy_of("published_once")


def fit_model(home, digests, protocol=PROTOCOL, model="mrf_dense", seed=0, run_id="run"):
    return train_model(home, digests[protocol], model, protocol=protocol, run_id=run_id, seed=seed)


def test_a_fit_is_kept_whole_and_taken_from_the_store_by_the_next_run(home, digests):
    fit = fit_model(home, digests)
    folder = home.models / "mrf_dense" / fit.digest
    assert json.loads((folder / "settings.json").read_text())["model"] == "mrf_dense"
    assert fit.saved_bytes > 0 and fit.seconds > 0 and fit.peak_bytes > 1 << 20
    stamp = (folder / "settings.json").stat().st_mtime_ns
    assert fit_model(home, digests, run_id="next") == fit
    assert (folder / "settings.json").stat().st_mtime_ns == stamp
    assert query_rows(home, "select run_id, protocol, model, digest from operations.model_fits") == [
        (run_id, PROTOCOL, "mrf_dense", fit.digest) for run_id in ("run", "next")
    ]


def test_a_fit_with_an_entry_that_is_not_finite_is_not_stored(home, digests, monkeypatch):
    save = MODELS["mrf_dense"].save

    def diverge(self, folder):
        self.weights.flat[3] = np.nan
        save(self, folder)

    monkeypatch.setattr(MODELS["mrf_dense"], "save", diverge)
    with pytest.raises(OneclassError, match="mrf_dense: the fit has diverged: 1 of 1,600 entries of weights are NaN"):
        fit_model(home, digests)
    assert not list(home.models.glob("mrf_dense/*")) and not query_rows(home, "from operations.model_fits")


def choose_and_publish(home, digests, run_id="run", **settings):
    models = {model: MODELS[model].Settings() for model in ("popularity", "mrf_dense")}
    for protocol in ("strong_generalization", PROTOCOL):
        fitted = fit_models(home, digests[protocol], models, protocol=protocol, run_id=run_id)
        evaluate(home, run_id, protocol, [fitted])
    chosen = choose_model(home, run_id, PublishSettings(**settings), list(models), "strong_generalization")
    fit = fit_model(home, digests, ALL_EDGES, chosen.model, run_id=run_id)
    of_fit = chosen.model, chosen.score, fit.digest, digests[ALL_EDGES]
    publish_fit(home, run_id, PublishSettings(**settings), *of_fit)


def published_again(home, digests, **settings):
    """Publish the model of the run before as that of the run `next`."""
    fit = fit_model(home, digests, ALL_EDGES, run_id="next").digest
    return publish_fit(home, "next", PublishSettings(**settings), "mrf_dense", "score", fit, digests[ALL_EDGES])


def test_without_validation_users_popularity_is_published_and_said(home, digests, caplog):
    models = ["mrf_dense", "popularity"]
    assert choose_model(home, "no run", PublishSettings(), models, None) == ChosenModel("popularity", "score")
    assert "publish.model" in caplog.text


def test_a_failed_publish_leaves_what_was_published(home, after_publishing, monkeypatch):
    target, before = home.published.resolve(), query_rows(home, "select * from published.recommendations order by all")
    monkeypatch.setattr("oneclass.tasks.publish.stage.leaderboard.format_markdown", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        published_again(home, after_publishing, top_n=4)
    assert home.published.resolve() == target
    assert query_rows(home, "select * from published.recommendations order by all") == before


def test_where_nothing_is_new_lists_stay_and_files_have_the_same_bytes(home, after_publishing, monkeypatch, caplog):
    before, lists = home.published.resolve(), query_rows(home, "select * from published.recommendations order by all")
    with warehouse.open_warehouse(home) as connection:  # a rollback fills the table in another order
        connection.execute("create temp table filled as from published.recommendations order by user_id desc")
        connection.execute("delete from published.recommendations")
        connection.execute("insert into published.recommendations from filled")
    monkeypatch.setattr(recommend_all, "imap", lambda *_, **__: 1 / 0)  # no list is made anew
    choose_and_publish(home, after_publishing, run_id="next", top_n=5)
    assert "published.exploration stay as they are" in caplog.text
    after = home.published.resolve()
    assert after.name == "next" and query_rows(home, "select * from published.recommendations order by all") == lists
    assert tables_of(after) == tables_of(before) and len(tables_of(after)) == 8
    for name in ("recommendations.parquet", "lists.parquet", "evaluation.parquet", "evaluation.csv", "evaluation.md"):
        assert (after / name).read_bytes() == (before / name).read_bytes()


@pytest.mark.parametrize("change", ["by hand", "top_n", "events"])
def test_lists_are_made_anew_where_what_they_are_made_from_has_changed(home, after_publishing, change, monkeypatch):
    made, count = [], 4 if change == "top_n" else 5
    whole = recommend_all.imap
    monkeypatch.setattr(recommend_all, "imap", lambda *given, **named: made.append(1) or whole(*given, **named))
    with warehouse.open_warehouse(home) as connection:
        if change == "by hand":
            connection.execute("update published.recommendations set score = score + 1")
        if change == "events":  # the lists stay, but not who has how many events
            connection.execute("insert into raw.events by name (from raw.events limit 1)")
    if change == "events":
        binarize(home, BinarizeSettings(), "next")
    published_again(home, after_publishing, top_n=count)
    assert len(made) == (change != "events")
    found = tables_of(home.published.resolve())
    assert len(found["recommendations"]) == 60 * count == len(query_rows(home, "from published.recommendations"))
    events = query_rows(home, "select count(*) from raw.events")[0][0]
    assert sum(count for _, _, count in found["users"]) == events


def tables_of(folder):
    with duckdb.connect(str(folder / "published.duckdb"), read_only=True) as connection:
        names = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
        return {name: connection.execute(f"from {name} order by all").fetchall() for name in names}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="the extra neural is not installed")
def test_the_validation_users_are_watched(home, digests):
    settings = MultDAE.Settings(epochs=6, batch_users=10, learning_rate=0.02, hidden=6)
    digest = digests["strong_generalization"]
    fit = train_model(home, digest, "mult_dae", settings, protocol="strong_generalization", seed=2)
    kept, read = fits.load_fit(home, "mult_dae", fit.digest), matrices.load_split(home, digest)
    part = read.parts["validation"]
    watched = FitOptions(validation=ValidationUsers(part.histories, part.targets))
    expected = MultDAE(settings, seed=2).fit(read.train, watched)
    np.testing.assert_array_equal(kept.scores(part.histories), expected.scores(part.histories))
    assert kept.best_epoch == expected.best_epoch


DEFAULTS = {name: MODELS[name].Settings() for name in Dataset(name="any").default_models}
SHOP = LogSize(166_666, 195_795, 1_850_000, 50_000_000)
GB = 10**9


def test_the_dense_models_of_a_large_catalogue_are_left_out_alone():
    reasons = capacity.find_large_models(DEFAULTS, [SHOP], 20 * GB)
    assert reasons == {
        name: f"a fit on 195,795 items needs about {needed} GB of memory, and 20.0 GB are free"
        for name, needed in (("mrf_dense", "308.0"), ("slist", "614.7"))
    }


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


def test_a_named_model_is_refused_with_what_to_change():
    with pytest.raises(
        InputError,
        match=r"^mrf_dense: a fit on 195,795 items needs about 308.0 GB of memory, and 20.0 "
        r"GB are free. Leave it out of --models, .* or take item_knn, sansa or mrf_sparse in its",
    ):
        capacity.refuse_large_models(DEFAULTS, [SHOP], 20 * GB)
    vectors = {"graph_filter": MODELS["graph_filter"].Settings(vectors=20_000)}
    with pytest.raises(InputError, match=r"graph_filter: .* or lower graph_filter.vectors\.$"):
        capacity.refuse_large_models(vectors, [SHOP], 20 * GB)
    factors = {"hpf": MODELS["hpf"].Settings(factors=20_000)}
    with pytest.raises(InputError, match=r"free. Leave it out of --models, or give the run more memory\.$"):
        capacity.refuse_large_models(factors, [SHOP], 20 * GB)
    capacity.refuse_large_models({"graph_filter": DEFAULTS["graph_filter"]}, [SHOP], 20 * GB)


@pytest.fixture
def shop(home, tmp_path):
    """60 users of two tastes, and 400 items of which only the table of attributes tells."""
    two_tastes(home)
    describe_items(home, tmp_path, [(f"n{item}", str(item % 2), item) for item in range(400)])
    return home, split_all(home)


def test_items_of_the_attribute_table_count_for_the_fit_that_is_published(shop):
    home, digests = shop
    logs = capacity.measure_logs(home, digests.values())
    columns = {name: matrices.load_split(home, digest).train.shape[1] for name, digest in digests.items()}
    assert columns[ALL_EDGES] == columns["leave_one_out"] + 400
    assert {log.items for log in logs} == set(columns.values())
    (dense,) = capacity.find_large_models({"mrf_dense": DEFAULTS["mrf_dense"]}, logs, 57 * 10**6).values()
    assert f"a fit on {columns[ALL_EDGES]:,} items" in dense


def test_a_default_run_notes_what_it_leaves_out_and_what_it_takes(shop, caplog, monkeypatch):
    home, digests = shop
    models = {name: DEFAULTS[name] for name in ("popularity", "mrf_dense", "slim")}
    settings = {"models": {name: of.model_dump() for name, of in models.items()}}
    with runs.record_run(home, "night", "backfill", settings):
        logs = capacity.measure_logs(home, digests.values())
        assert capacity.choose_models(home, "night", models, [""], logs, 10 * GB) == models
        inflate_cost(monkeypatch, MODELS["mrf_dense"], 10**6)
        chosen = capacity.choose_models(home, "night", models, [""], logs, 10 * GB)
        with pytest.raises(InputError, match="mrf_dense: a fit on 4"):
            capacity.choose_models(home, "night", models, ["mrf_dense"], logs, 10 * GB)
    assert list(chosen) == ["popularity", "slim", "sansa"]
    warning = next(record for record in caplog.records if "is left out" in record.message)
    assert warning.levelname == "WARNING" and "mrf_dense is left out: a fit on 4" in warning.message
    with warehouse.open_warehouse(home, read_only=True) as connection:
        (text,) = connection.execute("select settings from operations.runs where run_id = 'night'").fetchone()
    recorded = json.loads(text)
    assert list(recorded["left_out"]) == ["mrf_dense"] and set(recorded["models"]) == set(chosen)
