"""Warm start: yesterday's posterior is found by ids, and only while the numbering still means the same."""

import numpy as np
import pytest

from models.fitting import FitOptions, Start
from models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from tasks.binarize import BinarizeSettings, binarize
from tasks.split import ALL_EDGES, SplitSettings, split
from tasks.stores import matrices, runs, warehouse
from tasks.stores.warm_start import _places
from tasks.train import train

SETTINGS = PairedSymbolsSettings(factors=4, iterations=2)  # kernels are compiled for each number of factors


def night(home, run_id, settings=None, *, warm=True):
    """Binarize, split and fit once, as a run that ends well."""
    with runs.recorded(home, run_id, "nightly-retrain", {}):
        binarize(home, settings or BinarizeSettings(), run_id)
        digest = split(home, SplitSettings(), run_id, protocols=["leave_one_out"], seed=0).digests[ALL_EDGES]
        fit = train(
            home,
            run_id,
            protocol=ALL_EDGES,
            matrices_digest=digest,
            model="paired_symbols",
            settings=SETTINGS,
            seed=0,
            warm=warm,
        )
        with warehouse.connect(home) as connection:  # what an evaluation leaves
            connection.execute(
                "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', 'k', 1, 0, 1)", [run_id]
            )
    return fit, matrices.read(home, digest)


def events(users, generator=None):
    generator = generator or np.random.default_rng(2)
    return [(f"u{user}", f"i{item}", 1) for user in users for item in generator.choice(30, size=8, replace=False)]


def fitted(home, fit):
    return PairedSymbols.load(home.models / "paired_symbols" / fit.digest)


@pytest.fixture
def first(home, log_events):
    log_events(events(range(40)))
    return night(home, "first")


def test_the_next_night_begins_where_the_last_ended(home, log_events, first):
    log_events(events(range(35, 50), np.random.default_rng(5)), file_id=2)
    fit, split_now = night(home, "second")
    users, items = (np.arange(n) for n in split_now.train.shape)
    before = first[1].train.shape
    start = Start(
        fitted(home, first[0]), np.where(users < before[0], users, -1), np.where(items < before[1], items, -1)
    )
    expected = PairedSymbols(SETTINGS, seed=0).fit(split_now.train, FitOptions(start=start))
    histories = split_now.train[:5]
    cold = PairedSymbols(SETTINGS, seed=0).fit(split_now.train)
    assert np.array_equal(fitted(home, fit).scores(histories), expected.scores(histories))
    assert not np.array_equal(cold.scores(histories), expected.scores(histories))


def test_a_night_with_nothing_new_takes_the_fit_from_the_store(home, first):
    assert night(home, "second")[0].digest == first[0].digest


def test_without_warm_start_a_fit_does_not_depend_on_the_last(home, log_events, first):
    log_events(events(range(35, 50)), file_id=2)
    fit, split_now = night(home, "second", warm=False)
    assert np.array_equal(
        fitted(home, fit).scores(split_now.train),
        PairedSymbols(SETTINGS, seed=0).fit(split_now.train).scores(split_now.train),
    )


def test_a_new_numbering_begins_afresh(home, log_events, first, caplog):
    with warehouse.connect(home) as connection:
        connection.execute("delete from raw.events where user_id = 'u0'")  # every later user moves up by one
    fit, split_now = night(home, "second")
    assert "numbered anew" in caplog.text
    assert np.array_equal(
        fitted(home, fit).scores(split_now.train),
        PairedSymbols(SETTINGS, seed=0).fit(split_now.train).scores(split_now.train),
    )


def test_places_of_old_indices():
    assert _places(np.array([2, 5, 7]), np.array([7, 3, 2, 9])).tolist() == [2, -1, 0, -1]


def test_a_damaged_fit_is_not_begun_from(home, log_events, first):
    log_events(events(range(35, 50)), file_id=2)
    (home.models / "paired_symbols" / first[0].digest / "fit.json").write_text("{}")
    fit, split_now = night(home, "second")
    assert np.array_equal(
        fitted(home, fit).scores(split_now.train),
        PairedSymbols(SETTINGS, seed=0).fit(split_now.train).scores(split_now.train),
    )
