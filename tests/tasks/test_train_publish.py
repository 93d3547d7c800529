"""Train and publish on a small log: the model store, the choice on validation, and what readers see."""

import json
import shutil
from importlib.util import find_spec

import duckdb
import numpy as np
import pytest

from oneclass.models.autoencoders.networks import MultDAE
from oneclass.models.fit_options import FitOptions, ValidationUsers
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import recommend_all
from oneclass.tasks.publish.choice import ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import fits, matrices, warehouse
from tests.conftest import home_in, query_rows
from tests.tasks.conftest import publish_fit, train_model

PROTOCOL = "leave_one_out"


@pytest.fixture(scope="module")
def published_once(splits_once, tmp_path_factory):
    """(home, what `choose_and_publish` returned, digests) after one run that published."""
    home, digests = home_in(tmp_path_factory.mktemp("published")), splits_once[1]
    shutil.copytree(splits_once[0].root, home.root)
    return home, choose_and_publish(home, digests, top_n=5), digests


@pytest.fixture
def digests(home, splits_once):
    """The test's own copy of the split."""
    shutil.copytree(splits_once[0].root, home.root)
    return splits_once[1]


@pytest.fixture
def after_publishing(home, published_once):
    """The test's own copy of the publication, and the digests."""
    shutil.copytree(published_once[0].root, home.root, symlinks=True)
    return published_once[2]


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
    for protocol in ("strong_generalization", PROTOCOL):
        fits = {
            model: fit_model(home, digests, protocol, model, run_id=run_id).digest
            for model in ("popularity", "mrf_dense")
        }
        evaluate(home, run_id, protocol, [(digests[protocol], fits)])
    chosen = choose_model(
        home, run_id, PublishSettings(**settings), ["popularity", "mrf_dense"], "strong_generalization"
    )
    fit = fit_model(home, digests, ALL_EDGES, chosen.model, run_id=run_id)
    of_fit = chosen.model, chosen.score, fit.digest, digests[ALL_EDGES]
    return chosen, publish_fit(home, run_id, PublishSettings(**settings), *of_fit)


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


if find_spec("torch") is None:  # which takes seconds to load
    pytest.skip("the extra neural is not installed", allow_module_level=True)


@pytest.mark.slow
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
