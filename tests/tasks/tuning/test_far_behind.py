"""Which default models a run with long fits leaves out for what their searches found."""

import json

import pytest

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.tuning.auto import drop_models_far_behind

SMALL = LogSize(100, 50, 1000, 500)
LARGE = LogSize(148_609, 163_110, 1_848_709, 54_057_727)


def record_searches(home, searches, run_id="night"):
    """Record searches with trials of so many seconds, an eighth of a fit, and what they reached."""
    with warehouse.open_warehouse(home) as connection:
        for model, (seconds, reached) in searches.items():
            connection.execute(
                "insert into operations.model_settings (run_id, model, origin, reason, trials, seconds, reached, "
                "edges, settings) values (?, ?, 'search', 'tried', 4, ?, ?, 1600000, '{}')",
                [run_id, model, 4 * seconds, reached],
            )


@pytest.mark.parametrize(
    ("searches", "left_out"),
    [
        ({"hpf": (18.0, 0.1), "wmf": (10.0, 0.3)}, []),  # 14.9 minutes in all
        ({"hpf": (100.0, 0.13), "wmf": (100.0, 0.3)}, []),  # within two fifths
        ({"hpf": (100.0, 0.11), "wmf": (100.0, 0.3)}, ["hpf"]),
        ({"hpf": (100.0, 0.1), "slim": (200.0, 0.1), "wmf": (1.0, 0.3)}, ["slim", "hpf"]),
        ({"hpf": (20.0, 0.1), "slim": (200.0, 0.1), "wmf": (1.0, 0.3)}, ["slim"]),
        ({"wmf": (900.0, 0.0)}, []),  # all zero
        ({"hpf": (100.0, 0.2), "wmf": (99.0, 0.3)}, ["hpf"]),  # more than half of 106 minutes
        ({"hpf": (56.0, 0.2), "wmf": (55.0, 0.3)}, []),  # of 59 minutes
        ({"hpf": (50.0, 0.2), "wmf": (99.0, 0.3)}, []),
        ({"hpf": (60.0, 0.2), "slim": (110.0, 0.2), "wmf": (40.0, 0.3)}, ["slim"]),
        # Metrics on samples of items, where targets are found more easily, are compared among themselves.
        ({"hpf": (90.0, 0.2), "wmf": (100.0, 0.2), "mrf_dense": (1.0, 0.9)}, []),
        ({}, []),
    ],
)
def test_models_far_behind_are_left_out_where_all_fits_take_long(home, searches, left_out):
    """Of 4 fits of each model; the slowest first, until what is left takes less."""
    with runs.record_run(home, "night", "backfill", {"models": {}}):
        record_searches(home, searches)
        kept = drop_models_far_behind(home, "night", list(searches), [SMALL], 4)
    assert kept == [name for name in searches if name not in left_out]


def test_a_model_is_left_out_by_its_own_estimate_where_trials_take_little(home):
    """A trial of slim takes 5 s, and a fit on as many short histories several minutes; wmf's is linear in the likes."""
    with runs.record_run(home, "night", "backfill", {"models": {}}):
        record_searches(home, {"slim": (5, 0.0006), "wmf": (50, 0.0046)})
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], [SMALL], 1) == ["slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], [SMALL, LARGE], 1) == ["slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], [SMALL, LARGE], 4) == ["wmf"]


def test_a_run_notes_which_models_its_search_left_behind(home, caplog):
    """Of a run whose searches are recorded; the one of another run and a model without a search change nothing."""
    models = {name: MODELS[name].Settings() for name in ("popularity", "slim", "hpf", "wmf")}
    settings = {"models": {name: of.model_dump() for name, of in models.items()}, "left_out": {"mrf_dense": "large"}}
    with runs.record_run(home, "night", "backfill", settings):
        record_searches(home, {"slim": (1000, 0.3), "hpf": (1000, 0.1)})
        record_searches(home, {"wmf": (1000, 0.0)}, "before")
        assert drop_models_far_behind(home, "night", list(models), [SMALL], 3) == ["popularity", "slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim"], [SMALL], 3) == ["slim"]
    assert "hpf is left out: its fits take about 400 of 800 CPU minutes, and its search reached 0.1000" in caplog.text
    with warehouse.open_warehouse(home, read_only=True) as connection:
        (text,) = connection.execute("select settings from operations.runs where run_id = 'night'").fetchone()
    recorded = json.loads(text)
    assert list(recorded["left_out"]) == ["mrf_dense", "hpf"] and "hpf" not in recorded["models"]
