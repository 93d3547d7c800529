"""Warm start: yesterday's fit is found by ids, only while the numbering means the same and no answer was learned."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions, Start
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import fits, matrices, runs, warehouse
from oneclass.tasks.stores.fits import build_start
from oneclass.tasks.stores.matrices import Part
from tests.conftest import execute_statement, two_tastes
from tests.tasks.conftest import train_model

pytestmark = pytest.mark.slow

SETTINGS = PairedSymbolsSettings(factors=4, iterations=2)  # kernels are compiled for each number of factors


def run_night(
    home, run_id, settings=None, *, warm=True, model="paired_symbols", protocol=ALL_EDGES, of=SETTINGS, split_seed=0
):
    """Binarize, split and fit once, as a run that ends well."""
    protocols = ["leave_one_out", "strong_generalization"]
    with runs.record_run(home, run_id, "nightly-retrain", {}):
        binarize(home, settings or BinarizeSettings(), run_id)
        digest = split(home, run_id, SplitPlan(SplitSettings(), protocols, seed=split_seed)).digests[protocol]
        fit = train_model(home, digest, model, of, protocol=protocol, run_id=run_id, warm=warm)
        with warehouse.open_warehouse(home) as connection:  # what an evaluation leaves
            connection.execute(
                "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'k', 1, 0, 1)", [run_id]
            )
    return fit, matrices.load_split(home, digest)


def draw_events(users, generator=None):
    generator = generator or np.random.default_rng(2)
    return [(f"u{user}", f"i{item}", 1) for user in users for item in generator.choice(30, size=8, replace=False)]


def load_fit(home, fit):
    return PairedSymbols.load(home.models / "paired_symbols" / fit.digest)


@pytest.fixture
def first(home, log_events):
    log_events(draw_events(range(40)))
    return run_night(home, "first")


def test_the_next_night_begins_where_the_last_ended(home, log_events, first):
    log_events(draw_events(range(35, 50), np.random.default_rng(5)), file_id=2)
    fit, split_now = run_night(home, "second")
    users, items = (np.arange(n) for n in split_now.train.shape)
    before = first[1].train.shape
    start = Start(
        load_fit(home, first[0]), np.where(users < before[0], users, -1), np.where(items < before[1], items, -1)
    )
    expected = PairedSymbols(SETTINGS, seed=0).fit(split_now.train, FitOptions(start=start))
    histories = split_now.train[:5]
    cold = PairedSymbols(SETTINGS, seed=0).fit(split_now.train)
    found = fits.load_fit(home, "paired_symbols", fit.digest).scores(histories)
    assert np.array_equal(found, expected.scores(histories))
    assert not np.array_equal(cold.scores(histories), expected.scores(histories))


def test_a_night_with_nothing_new_takes_the_fit_from_the_store(home, first):
    assert run_night(home, "second")[0].digest == first[0].digest


@pytest.mark.parametrize("reason", ["not asked for", "numbered anew", "damaged"])
def test_a_fit_that_cannot_begin_at_the_last_begins_afresh(home, log_events, first, caplog, reason):
    log_events(draw_events(range(35, 50)), file_id=2)
    if reason == "numbered anew":
        execute_statement(home, "delete from raw.events where user_id = 'u0'")  # every later user moves up by one
    if reason == "damaged":
        (home.models / "paired_symbols" / first[0].digest / "fit.json").write_text("{}")
    fit, split_now = run_night(home, "second", warm=reason != "not asked for")
    assert ("numbered anew" in caplog.text) == (reason == "numbered anew")
    afresh = PairedSymbols(SETTINGS, seed=0).fit(split_now.train)
    assert np.array_equal(load_fit(home, fit).scores(split_now.train), afresh.scores(split_now.train))


@pytest.mark.parametrize("protocol", ["leave_one_out", "strong_generalization"])
def test_a_fit_that_has_learned_what_is_to_be_found_is_not_begun_from(home, log_events, caplog, protocol):
    log_events(draw_events(range(40)))
    run_night(home, "first", protocol=protocol)
    log_events(draw_events(range(35, 50), np.random.default_rng(5)), file_id=2)
    grown = run_night(home, "second", protocol=protocol)
    assert "begins at the fit" in caplog.text
    assert "begins afresh" not in caplog.text
    other = run_night(home, "third", protocol=protocol, split_seed=1)
    assert "trained on edges that have to be found now" in caplog.text
    assert grown[0].digest != other[0].digest
    assert np.array_equal(
        load_fit(home, other[0]).scores(other[1].train),
        PairedSymbols(SETTINGS, seed=0).fit(other[1].train).scores(other[1].train),
    )


WMF_SETTINGS = MODELS["wmf"].Settings(factors=4, iterations=1)


@pytest.mark.parametrize(("leaked", "begins"), [(0, True), (3, True), (4, False)])
def test_a_hundredth_of_the_targets_may_have_been_trained_on(home, caplog, leaked, begins):
    two_tastes(home)
    binarize(home, BinarizeSettings(), "run")
    digest = split(home, "run", SplitPlan(SplitSettings(), ["leave_one_out"], seed=1)).digests[ALL_EDGES]
    fit = train_model(home, digest, "wmf", WMF_SETTINGS)
    before = matrices.load_split(home, digest)
    known = before.train.toarray() > 0
    trained, unknown = np.argwhere(known)[:leaked], np.argwhere(~known)[: 300 - leaked]
    rows, columns = np.concatenate([trained, unknown]).T
    targets = csr_matrix((np.ones(300, dtype=np.float32), (rows, columns)), shape=known.shape)
    assert targets.multiply(before.train).nnz == leaked
    now = replace(before, parts={"test": Part(before.train, targets, before.users, np.arange(len(known)))})
    start = build_start(home, MODELS["wmf"](WMF_SETTINGS, seed=0), fit, now)
    assert (start is not None) == begins
    assert ("trained on edges that have to be found now" in caplog.text) != begins
    if start is not None:  # users with a leaked target begin as new ones
        assert np.flatnonzero(start.users < 0).tolist() == sorted(set(rows[:leaked].tolist()))
