"""The list that is published: by random values of validation users, as a naive rule in plain Python chooses."""

import json
import statistics

import numpy as np
import pytest

from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.registry import MODELS
from oneclass.tasks.evaluate.tables import RankedList, write_evaluation
from oneclass.tasks.protocols import VALIDATION_METRIC, find_deciding_protocol
from oneclass.tasks.publish.choice import SIMPLEST_FIRST, ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import warehouse
from tests.conftest import write_tables

PROTOCOL = "strong_generalization"
MODEL_NAMES = ["blend", "slim", "popularity", "wmf", "random_graph"]
NAMES = [f"{model}/score" for model in MODEL_NAMES[:4]] + ["random_graph/like", "random_graph/popularity_x_odds"]


def plant(home, runs: dict[str, dict[str, np.ndarray]]) -> None:
    """Write the evaluation of the lists of some runs, each list with a value for every validation user."""
    write_tables(home)
    with warehouse.open_warehouse(home) as connection:
        for run_id, lists in runs.items():
            ranked = []
            for name, values in lists.items():
                means = {VALIDATION_METRIC: mean_and_error(values)}
                ranked.append(RankedList(*name.split("/"), {VALIDATION_METRIC: values}, means, {}, [], []))
            write_evaluation(connection, run_id, PROTOCOL, ranked, [], [])


def find_choice(home, candidates=MODEL_NAMES, run_id="run", **settings):
    return choose_model(home, run_id, PublishSettings(**settings), list(candidates), PROTOCOL)


def choose_naively(lists: dict[str, list[float]], prefer: str) -> str:
    mean = {name: statistics.fmean(values) for name, values in lists.items()}
    best = max(sorted(lists), key=lambda name: round(mean[name], 12))
    if prefer == "best":
        return best
    close = []
    for name, values in lists.items():
        behind = [one - other for one, other in zip(lists[best], values, strict=True)]
        if statistics.fmean(behind) <= statistics.stdev(behind) / len(behind) ** 0.5:
            close.append(name)
    place = {model: number for number, models in enumerate(SIMPLEST_FIRST) for model in models}
    return min(close, key=lambda name: (place[name.split("/")[0]], -mean[name], name))


def draw_lists(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    users, count = generator.integers(2, 60), generator.integers(2, len(NAMES) + 1)
    level, names = generator.random(users), generator.choice(NAMES, count, replace=False).tolist()
    return {
        name: level + generator.normal(0, 0.1) + generator.normal(0, generator.uniform(0, 0.5), users) for name in names
    }


def test_the_best_mean_is_published_or_the_simplest_within_one_standard_error(home):
    plant(home, runs := {f"run {seed}": draw_lists(seed) for seed in range(1, 17)})
    differ = 0
    for run_id, lists in runs.items():
        of_users = {name: values.tolist() for name, values in lists.items()}
        best, simplest = choose_naively(of_users, "best"), choose_naively(of_users, "simplest")
        assert find_choice(home, run_id=run_id) == ChosenModel(*best.split("/")), run_id
        assert find_choice(home, run_id=run_id, prefer="simplest") == ChosenModel(*simplest.split("/")), run_id
        differ += best != simplest
    assert 3 < differ < 13


def test_only_candidates_are_published_and_a_model_that_is_asked_for_by_its_best_score(home):
    """That nobody else is ahead of popularity by more than chance does not matter."""
    values = np.random.default_rng(2).random(9)
    lists = {
        "random_graph/like": values,
        "random_graph/popularity_x_odds": values + 0.05,
        "popularity/score": values - np.arange(9) % 3 / 10,
        "blend/score": values + np.arange(9) % 2 / 3,
    }
    plant(home, {"run": lists})
    assert find_choice(home) == ChosenModel("blend", "score")
    assert find_choice(home, ["popularity", "random_graph"]) == ChosenModel("random_graph", "popularity_x_odds")
    assert find_choice(home, model="random_graph") == ChosenModel("random_graph", "popularity_x_odds")
    assert find_choice(home, ["popularity"]) == ChosenModel("popularity", "score")


def test_every_model_has_its_place_in_the_order():
    assert sorted(model for models in SIMPLEST_FIRST for model in models) == sorted(MODELS)


@pytest.mark.parametrize(
    ("setting", "judged", "protocol"),
    [
        ("auto", ["next_events", "strong_generalization", "cold_items"], "next_events"),
        ("auto", ["strong_generalization", "cold_items"], "strong_generalization"),
        ("strong_generalization", ["next_events", "strong_generalization"], "strong_generalization"),
        ("auto", ["cold_items"], "leave_one_out"),  # cold_items never chooses
        ("auto", [], "leave_one_out"),
    ],
)
def test_the_protocol_that_decided_is_known_from_a_runs_tables(home, setting, judged, protocol):
    write_tables(home)
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "insert into operations.runs values ('run', 'pipeline', 'small', '2031-05-06', null, 'completed', ?, '')",
            [json.dumps({"publish": {"protocol": setting}})],
        )
        rows = [(name, "ndcg@100") for name in [*judged, "cold_items", "leave_one_out"]]
        for name, metric in dict.fromkeys(rows + [(name, VALIDATION_METRIC) for name in judged]):
            row = ["run", name, "wmf", "score", metric, 0.5, 0.1, 40]
            connection.execute("insert into evaluation.metrics values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        assert find_deciding_protocol(connection, "run") == protocol
        assert find_deciding_protocol(connection, "another") is None
