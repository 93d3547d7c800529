"""What takes seconds to make, once a session, for tests that read; and the steps of a run, with few words."""

import hashlib
import shutil

import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import AttributeTable
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.plan import PublicationPlan, RecommendationSpec, specify_recommendations
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.recommend import load
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED
from oneclass.tasks.report import report
from oneclass.tasks.rules.settings import NO_RULES
from oneclass.tasks.split import protocols
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores.home import Home
from oneclass.tasks.train import FitPlan, collect_fits, record_fits, submit_fits
from tests.conftest import home_in, two_tastes
from tests.report_rows import RUN, fill_home

SETTINGS = {
    "popularity": {},
    "mrf_dense": {"l2": 2.0},
    "slim": {"l1": 1.0, "l2": 10.0},
    "wmf": {"factors": 4, "iterations": 2},
    "random_graph": {"factors": 4, "iterations": 2},
}
TITLES = "item_id,title\n" + "".join(f'i{item},"Item, the {item}th"\n' for item in range(30))


@pytest.fixture(autouse=True, scope="session")
def keep_publications():
    """Keep more publications than a run does, so that tests can look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.tasks.publish.stage.KEPT", 9)
        yield


def copy_of(name):
    """Return a fixture: what the module's fixture `name` has beside a home, of which the test's own gets a copy."""

    @pytest.fixture
    def copied(request, home):
        made, rest = request.getfixturevalue(name)
        shutil.copytree(made.root, home.root, symlinks=True)
        return rest

    return copied


def ingest_with_items(home, folder, log, items, **kinds):
    """Ingest a log of a data set whose items have a table, both CSV that is written to a folder."""
    (folder / "log.csv").write_text(log)
    (folder / "items.csv").write_text(items)
    table = AttributeTable(file=str(folder / "items.csv"), **kinds)
    ingest(home, Dataset(name=home.dataset, items=table), [folder / "log.csv"], "run")


def split_likes(home, *protocols, likes=None, run_id="run", seed=1, plan=None, **settings):
    """Binarize the log of a home and split it, by settings of the split and more of its plan; return the digests."""
    likes = likes or BinarizeSettings()
    binarize(home, likes, run_id)
    made = SplitPlan(SplitSettings(**settings), protocols, seed, **{"likes": LikeSelection(likes)} | (plan or {}))
    return split(home, run_id, made).digests


@pytest.fixture(scope="session")
def splits_once(tmp_path_factory):
    """(home, digests of its splits): 60 users of two tastes."""
    home = home_in(tmp_path_factory.mktemp("split"))
    two_tastes(home)
    digests = split_likes(home, "strong_generalization", "leave_one_out", held_out_share=0.2)
    (home.root / "titles.csv").write_text(TITLES)
    return home, digests


@pytest.fixture(scope="session")
def split_once(splits_once):
    """The same home, and the digest of the matrix of every edge."""
    return splits_once[0], splits_once[1][ALL_EDGES]


def train_model(home, digest, model, settings=None, *, protocol=ALL_EDGES, run_id="run", seed=0, warm=False):
    """Fit a model on a stored matrix as a run does, by default with its default settings."""
    plan = FitPlan(model, {protocol: settings or MODELS[model].Settings()}, {protocol: digest}, seed, warm)
    fit = collect_fits(model, submit_fits(home, plan))[protocol]
    record_fits(home, run_id, {protocol: {model: fit}})
    return fit


def fit_models(home, digest, models, **options):
    """Fit models by their settings on a stored matrix; return its digest and those of the fits, for `evaluate`."""
    return digest, {name: train_model(home, digest, name, of, **options).digest for name, of in models.items()}


def publish_fit(home, run_id, settings, *fit, assessment=None, declared=NO_RULES, seed=0, **of_lists):
    """Publish the lists of a fit on every edge: its model and score, its digest, and that of its matrices."""
    spec = specify_recommendations(settings, RecommendationSpec(*fit, settings.top_n, **of_lists), seed=seed)
    return publish(
        home, run_id, PublicationPlan(settings=settings, lists=spec, assessment=assessment, declared=declared)
    )


def publish_model(
    home, digest, model, run_id, *, companion=None, calibrations=UNCALIBRATED, seen_items=False, **limits
):
    fit, *beside = (
        train_model(home, digest, name, MODELS[name].Settings(**SETTINGS[name]), run_id=run_id)
        for name in [model, *([companion] if companion else [])]
    )
    settings = PublishSettings(top_n=5, titles=str(home.root / "titles.csv"), **limits)
    publish_fit(
        home,
        run_id,
        settings,
        model,
        MODELS[model].score_names[-1],
        fit.digest,
        digest,
        companion=(companion, beside[0].digest) if companion else None,
        calibrations=calibrations,
        exclude_seen=not seen_items,
    )


@pytest.fixture(scope="session")
def by_model(split_once, tmp_path_factory):
    """A home that has published each model, and what answers for each; for tests that only read."""
    home, shops = home_in(tmp_path_factory.mktemp("published")), {}
    shutil.copytree(split_once[0].root, home.root)
    for model in SETTINGS:
        publish_model(home, split_once[1], model, f"of-{model}")
        shops[model] = load(home.root, "small")
    return home, shops


@pytest.fixture(scope="session")
def shop(by_model):
    return by_model[1]["mrf_dense"]


@pytest.fixture
def copied(by_model, tmp_path):
    """A home of one's own, with random_graph published."""
    shutil.copytree(by_model[0].root, tmp_path / "var", symlinks=True)
    return Home(tmp_path / "var", "small", by_model[0].limits)


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A home with the report on `tests.report_rows`; for tests that only read."""
    home = fill_home(tmp_path_factory.mktemp("report"))
    report(home, RUN)
    return home


@pytest.fixture(scope="session")
def page(reported):
    return (reported.report / "index.html").read_text()


def md5_number(text):
    """Return DuckDB's md5_number: the digest as a little-endian number."""
    return int.from_bytes(hashlib.md5(text.encode()).digest(), "little")


def cut_next_events_at(patch, day):
    """Let next_events begin at a day, whatever share of the edges came from then on."""
    found = protocols.find_cut_day
    patch.setattr(
        "oneclass.tasks.split.stage.find_cut_day",
        lambda connection, *edges: found(connection, *edges) if edges else found(connection) and day,
    )
