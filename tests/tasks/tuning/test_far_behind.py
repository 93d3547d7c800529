"""Which default models a run with long fits leaves out for what their searches found."""

import json

import pytest

from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.tuning.far_behind import SearchCost, drop_models_far_behind, find_models_far_behind


def search_costs(**models):
    """Searches with trials of so many seconds, an eighth of a fit, and what they reached."""
    return [SearchCost(model, reached, seconds, 1_600_000) for model, (seconds, reached) in models.items()]


@pytest.mark.parametrize(
    ("of", "left_out"),
    [
        ({"slow": (18.0, 0.1), "best": (10.0, 0.3)}, []),  # 14.9 minutes in all
        ({"slow": (100.0, 0.13), "best": (100.0, 0.3)}, []),  # within two fifths
        ({"slow": (100.0, 0.11), "best": (100.0, 0.3)}, ["slow"]),
        ({"slow": (100.0, 0.1), "slower": (200.0, 0.1), "best": (1.0, 0.3)}, ["slower", "slow"]),
        ({"slow": (20.0, 0.1), "slower": (200.0, 0.1), "best": (1.0, 0.3)}, ["slower"]),
        ({"all zero": (900.0, 0.0)}, []),
        ({"cheap": (1.0, 0.1), "best": (200.0, 0.3)}, []),
        ({"less cheap": (3.0, 0.1), "best": (200.0, 0.3)}, ["less cheap"]),
        ({"slow": (100.0, 0.2), "best": (99.0, 0.3)}, ["slow"]),  # more than half of 106 minutes
        ({"slow": (56.0, 0.2), "best": (55.0, 0.3)}, []),  # of 59 minutes
        ({"slow": (50.0, 0.2), "best": (99.0, 0.3)}, []),
        ({"slow": (60.0, 0.2), "slower": (110.0, 0.2), "best": (40.0, 0.3)}, ["slower"]),
        ({}, []),
    ],
)
def test_models_far_behind_are_left_out_where_all_fits_take_long(of, left_out):
    """Of 4 fits of each model; the slowest first, until what is left takes less."""
    assert list(find_models_far_behind(search_costs(**of), 4)) == left_out


def test_metrics_on_samples_of_items_are_not_compared_with_those_on_samples_of_users():
    searches = search_costs(slow=(100.0, 0.1), best=(100.0, 0.2))
    of_items = SearchCost("neighbours", 0.9, 1.0, 1_600_000, samples_items=True)
    behind = SearchCost("inverse", 0.3, 50.0, 1_600_000, samples_items=True)
    assert list(find_models_far_behind([*searches, of_items, behind], 4)) == ["inverse"]


def test_a_model_is_left_out_by_its_own_estimate_where_trials_take_little(home):
    """A trial of slim takes 5 s, and a fit on as many short histories several minutes; wmf's is linear in the likes."""
    logs = [LogSize(1000, 800, 10**4, 5000), LogSize(148_609, 163_110, 1_848_709, 54_057_727)]
    with runs.record_run(home, "night", "backfill", {"models": {}}):
        with warehouse.open_warehouse(home) as connection:
            for model, reached, seconds in (("slim", 0.0006, 20), ("wmf", 0.0046, 4 * 50)):
                connection.execute(
                    "insert into operations.model_settings (run_id, model, origin, reason, trials, seconds, reached, "
                    "edges, settings) values ('night', ?, 'search', 'tried', 4, ?, ?, 1848709, '{}')",
                    [model, seconds, reached],
                )
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], logs[:1], 1) == ["slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], logs, 1) == ["slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim", "wmf"], logs, 4) == ["wmf"]


def test_a_run_notes_which_models_its_search_left_behind(home, caplog):
    """Of a run whose searches are recorded; the one of another run and a model without a search change nothing."""
    models = {name: MODELS[name].Settings() for name in ("popularity", "slim", "hpf", "wmf")}
    settings = {"models": {name: of.model_dump() for name, of in models.items()}, "left_out": {"mrf_dense": "large"}}
    with runs.record_run(home, "night", "backfill", settings):
        with warehouse.open_warehouse(home) as connection:
            for run_id, model, reached in (("night", "slim", 0.3), ("night", "hpf", 0.1), ("before", "wmf", 0.0)):
                connection.execute(
                    "insert into operations.model_settings (run_id, model, origin, reason, trials, seconds, reached, "
                    "edges, settings) values (?, ?, 'search', 'tried', 4, 4000, ?, 1600000, '{}')",
                    [run_id, model, reached],
                )
        logs = [LogSize(100, 50, 1000, 500)]
        assert drop_models_far_behind(home, "night", list(models), logs, 3) == ["popularity", "slim", "wmf"]
        assert drop_models_far_behind(home, "night", ["slim"], logs, 3) == ["slim"]
    assert "hpf is left out: its fits take about 400 of 800 CPU minutes, and its search reached 0.1000" in caplog.text
    with warehouse.open_warehouse(home, read_only=True) as connection:
        (text,) = connection.execute("select settings from operations.runs where run_id = 'night'").fetchone()
    recorded = json.loads(text)
    assert list(recorded["left_out"]) == ["mrf_dense", "hpf"] and "hpf" not in recorded["models"]
