"""The model that is published: planted lists whose p-values lie at the bounds of the rule."""

import json
from itertools import combinations

import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.protocols import VALIDATION_METRIC, find_deciding_protocol
from oneclass.tasks.publish.choice import SIMPLEST_FIRST, ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import warehouse
from tests.conftest import write_tables

PROTOCOL = "strong_generalization"


@pytest.fixture
def plant(home):
    """Plant lists, `model/score: (value, plain p-value of every comparison)`."""

    def planted(lists: dict[str, tuple[float, float | None]]) -> None:
        write_tables(home)
        with warehouse.open_warehouse(home) as connection:
            for of_list, (value, _) in lists.items():
                row = ["run", PROTOCOL, *of_list.split("/"), VALIDATION_METRIC, value, 0.01, 40]
                connection.execute("insert into evaluation.metrics values (?, ?, ?, ?, ?, ?, ?, ?)", row)
            for (one, (value, p)), (other, (second, p_of_other)) in combinations(lists.items(), 2):
                p_value = p if value < second else p_of_other
                row = ["run", PROTOCOL, VALIDATION_METRIC, *one.split("/"), *other.split("/"), value - second, 0.02,
                       p_value, 40, None]  # fmt: skip
                connection.execute(f"insert into evaluation.comparisons values ({', '.join('?' * 12)})", row)

    return planted


def find_choice(home, candidates=("blend", "slim", "popularity", "wmf", "random_graph"), **settings):
    return choose_model(home, "run", PublishSettings(**settings), list(candidates), PROTOCOL)


@pytest.mark.parametrize(
    ("of_slim", "of_popularity", "model"),
    [
        (0.9, 0.0166, "slim"),  # Holm's factor of the smaller p-value is 3 x 2 / 2
        (0.9, 0.0168, "popularity"),
        (0.0249, 1e-9, "blend"),  # that of the larger one is 2 x 2 / 2
        (0.0251, 1e-9, "slim"),
        (None, 1e-9, "slim"),  # without a test it is not surely worse
    ],
)
def test_of_those_that_cannot_be_told_from_the_best_the_simplest_is_published(
    home, plant, of_slim, of_popularity, model
):
    plant({"popularity/score": (0.2, of_popularity), "blend/score": (0.4, None), "slim/score": (0.39, of_slim)})
    assert find_choice(home).model == model
    assert find_choice(home, prefer="best").model == "blend"


def test_of_a_models_lists_the_best_one_is_published_and_only_candidates_count(home, plant):
    plant({"random_graph/like": (0.3, 0.5), "random_graph/popularity_x_odds": (0.35, 0.5), "blend/score": (0.4, None)})
    assert find_choice(home) == ChosenModel("random_graph", "popularity_x_odds")
    assert find_choice(home, ["blend"]) == ChosenModel("blend", "score")
    assert find_choice(home, model="blend") == ChosenModel("blend", "score")


def test_of_equally_simple_models_the_best_is_published(home, plant):
    plant({"slim/score": (0.38, 0.5), "mrf_dense/score": (0.39, 0.5), "blend/score": (0.4, None)})
    assert find_choice(home, ["slim", "mrf_dense", "blend"]).model == "mrf_dense"


def test_the_reason_names_the_best_and_how_far_the_choice_is_behind_it(home, plant):
    plant({"slim/score": (0.39, 0.6), "blend/score": (0.4, None), "popularity/score": (0.1, 1e-9)})
    assert find_choice(home).reason == (
        "the simplest of 2 lists that cannot be told from the best, blend/score, by ndcg@100 of 40 validation users of "
        "strong_generalization: -0.0100 ± 0.0200"
    )
    assert find_choice(home, prefer="best").reason == (
        "the best of 3 lists by ndcg@100 of 40 validation users of strong_generalization, 1 of the others cannot be "
        "told from it"
    )
    assert find_choice(home, ["blend", "popularity"]).reason == (
        "the best of 2 lists by ndcg@100 of 40 validation users of strong_generalization, all others are surely worse"
    )


@pytest.mark.parametrize("prefer", ["simplest", "best"])
def test_that_nothing_is_surely_better_than_popularity_is_a_verdict(home, plant, caplog, prefer):
    plant({"popularity/score": (0.38, 0.4), "wmf/score": (0.4, None)})
    found = find_choice(home, prefer=prefer)
    assert found.model == {"simplest": "popularity", "best": "wmf"}[prefer]
    verdict = "nothing is surely better than popularity on 40 validation users; "
    assert found.reason.startswith(verdict) and verdict in caplog.text


def test_where_popularity_is_surely_worse_or_the_best_there_is_no_such_verdict(home, plant, caplog):
    plant({"popularity/score": (0.41, None), "wmf/score": (0.4, 0.4), "blend/score": (0.39, 0.3)})
    assert find_choice(home).reason.startswith("the best of 3 lists")
    assert "surely better" not in caplog.text


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
