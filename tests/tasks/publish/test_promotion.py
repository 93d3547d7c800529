"""The choice of a list by a naive rule, and its promotion: bad nights, gates, and what people do by hand."""

import shutil
import statistics
from dataclasses import replace

import numpy as np
import pytest

from oneclass.models.evaluation.metrics import Mean, mean_and_error
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.evaluate.tables import RankedList, write_evaluation
from oneclass.tasks.protocols import ALL_EDGES, VALIDATION_METRIC, find_deciding_protocol
from oneclass.tasks.publish import gates, manual, promotion
from oneclass.tasks.publish.choice import SIMPLEST_FIRST, ChosenModel, choose_model
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.rules.settings import Rules
from oneclass.tasks.stores import checksums, publications, runs, warehouse
from tests.conftest import execute_statement, home_in, query_rows, two_tastes, write_tables
from tests.tasks.conftest import copy_of, publish_fit, split_likes, train_model

PROTOCOL = "strong_generalization"
SETTINGS = {"mrf_dense": MODELS["mrf_dense"].Settings(), "popularity": MODELS["popularity"].Settings()}
LIMITS = PublishSettings(top_n=5)
WIDE = PublishSettings(top_n=5, margin=1e9)
MADE_WITH = gates.describe_settings({"threshold": 1, "explicit_negatives": True}, {}, "exclude", Rules(), 0.1)


def prepare_splits(home):
    return split_likes(home, PROTOCOL, run_id="x", held_out_share=0.25)


def fit_model(home, run_id, digests, protocol, model, **settings):
    settings = MODELS[model].Settings(**settings)
    return train_model(home, digests[protocol], model, settings, protocol=protocol, run_id=run_id).digest


def run_night(
    home, run_id, digests, model="mrf_dense", *, fits=None, limits=LIMITS, reason="", made_with=MADE_WITH, **settings
):
    """Run the steps after the fits: decide on a model, and publish it unless the champion stays."""
    fits = fits or {model: fit_model(home, run_id, digests, PROTOCOL, model, **settings)}
    of_run = {**SETTINGS, model: MODELS[model].Settings(**settings)}
    tonight = promotion.Night(home, of_run, [(digests[PROTOCOL], fits)], made_with=made_with)
    assessment = promotion.assess_challenger(tonight, ChosenModel(model, "score", reason), limits)
    if assessment.keeps_champion:
        return publish(home, run_id, PublicationPlan(settings=limits, assessment=assessment)).decision
    fit = model, "score", fit_model(home, run_id, digests, ALL_EDGES, model, **settings), digests[ALL_EDGES]
    return publish_fit(home, run_id, limits, *fit, assessment=assessment).decision


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """(home, digests) after a night that published: two tastes, 240 people, 200 items."""
    home = home_in(tmp_path_factory.mktemp("first"))
    two_tastes(home, users=240, items=100, likes=24)
    with runs.record_run(home, "first", "backfill", {"models": {"mrf_dense": {}, "popularity": {}}, "seed": 0}):
        digests = prepare_splits(home)
        fits = {model: fit_model(home, "first", digests, PROTOCOL, model) for model in SETTINGS}
        evaluate(home, "first", PROTOCOL, [(digests[PROTOCOL], fits)])
        assert run_night(home, "first", digests).promoted
    return home, digests


digests = copy_of("first")


def change_log(home, statement):
    execute_statement(home, statement)
    execute_statement(home, "update operations.log_files set events = (select count(*) from raw.events)")
    return prepare_splits(home)


def check_unchanged(home, decision, words):
    """Check that nothing moved, and that the row says why."""
    row, *_ = query_rows(home, "select promoted, reason from operations.promotions order by rowid desc")
    assert row == (False, decision.reason) and words in decision.reason, decision.reason
    assert home.published.resolve().name == "first"
    assert not list(home.publications.glob("bad*"))


@pytest.fixture
def few_items(monkeypatch):
    monkeypatch.setattr(gates, "MIN_COVERAGE_RATIO", 0.0)


@pytest.mark.usefixtures("few_items")
def test_the_choice_between_the_champion_and_a_simpler_model_is_not_undone_by_the_margin(home, digests):
    fits = {model: fit_model(home, "second", digests, PROTOCOL, model) for model in SETTINGS}
    decision = run_night(home, "second", digests, "popularity", fits=fits, reason="the simplest of 2 lists")
    assert decision.promoted and decision.difference < -decision.standard_error
    assert decision.reason.endswith(", which the run could choose too; the simplest of 2 lists")


def test_a_champion_that_is_none_of_tonights_models_is_fitted_for_the_comparison(home, digests):
    decision = run_night(home, "bad", digests, l2=1e7)
    assert decision.champion == decision.challenger == "mrf_dense/score" and decision.difference != 0
    assert "over the same validation users" in decision.reason


def test_a_worse_configuration_is_not_promoted_and_the_one_that_stands_is_assessed_on_newer_edges_in_its_place(
    home, digests
):
    columns = "'new', item_id, 1, null, file_id, 10000 + line_number, null"
    newer = change_log(home, f"insert into raw.events select {columns} from raw.events where user_id = 'u0'")
    refused = run_night(home, "bad", newer, "popularity")
    check_unchanged(home, refused, "worse by more than publish.margin = 1 standard errors")
    assert "of the champion's own night" in refused.reason  # whose model failed tonight
    assert refused.champion == "mrf_dense/score" and refused.difference < -refused.standard_error
    fits = {"mrf_dense": fit_model(home, "bad", newer, PROTOCOL, "mrf_dense")}
    tonight = promotion.Night(home, SETTINGS, [(newer[PROTOCOL], fits)])
    fresh = promotion.assess_champion(tonight, refused, PublishSettings())
    assert fresh.challenger.name == "mrf_dense/score" and not fresh.keeps_champion
    assert fresh.challenger.users == promotion.load_champion(home).users + 1
    assert fresh.note.endswith(f"; popularity/score was refused: {refused.reason}")
    own = replace(refused, challenger="mrf_dense/score")
    assert promotion.assess_champion(tonight, own, PublishSettings()) is None


HALVED = "delete from raw.events where hash(user_id, item_id) % 2 = 0"


@pytest.mark.parametrize(
    ("change", "limits", "words"),
    [
        (HALVED, {}, "less than 80% of it"),
        ("update raw.events set item_id = 'i' || hash(user_id, item_id) % 200", {"min_size_ratio": 0},
         "Are ids mixed up?"),
    ],
)  # fmt: skip
def test_a_broken_log_is_not_promoted_unless_it_is_of_other_rules(home, digests, change, limits, words):
    broken = change_log(home, change)
    decision = run_night(home, "bad", broken, limits=PublishSettings(top_n=5, **limits))
    check_unchanged(home, decision, words)
    if change == HALVED:
        decision = run_night(home, "next", broken, made_with=MADE_WITH | {"binarize.threshold": 2})
        assert decision.promoted and "binarize.threshold changed since the standing publication" in decision.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: np.full_like(weights, np.inf), "NaN or infinite"),
        (lambda weights: np.full_like(weights, 0.0), "everybody the same scores"),
        (lambda weights: weights.max() - weights, "guesses have 0.5"),
    ],
    ids=["infinite", "constant", "worse than guesses"],
)
def test_a_diverged_model_is_not_promoted(home, digests, change, words):
    fit = fit_model(home, "bad", digests, PROTOCOL, "mrf_dense")
    folder = home.models / "mrf_dense" / fit
    np.save(folder / "weights.npy", change(np.load(folder / "weights.npy")))
    manifest = checksums.format_manifest(folder, "fit.json", checksums.find_facts(folder, "fit.json"))
    (folder / "fit.json").write_text(manifest)
    check_unchanged(home, run_night(home, "bad", digests, fits={"mrf_dense": fit}), words)


def test_lists_of_few_items_or_one_score_are_not_promoted_unless_they_include_what_others_leave_out(home, digests):
    sound = {"entries": 9, "not_finite": 0, "constant": False}
    assert gates.check_lists(sound) is None
    for bad, words in (({"not_finite": 1}, "NaN"), ({"constant": True}, "same score")):
        assert words in gates.check_lists(sound | bad)
    check_unchanged(home, run_night(home, "bad", digests, "popularity", limits=WIDE), "different items")
    # Lists that include what others leave out are not compared by coverage.
    including = MADE_WITH | {gates.SEEN: "include"}
    decision = run_night(home, "next", digests, "popularity", limits=WIDE, made_with=including)
    assert decision.promoted and "publish.seen changed since the standing publication" in decision.reason


def test_gates_go_on_that_neither_a_changed_setting_nor_a_manifest_with_other_values_opens(home, digests):
    fewer = change_log(home, "delete from raw.events where substr(user_id, 2)::int >= 100")
    facts, files = checksums.parse_record((file := home.published / "manifest.json").read_text(), "")
    facts["recommended"] |= {"edges": 1, "users": 1}
    file.write_text(checksums._format_record(facts, files))  # a sound one
    assert promotion.load_champion(home).users == 240
    rules = gates.describe_settings({"threshold": 1}, {}, "exclude", Rules(banned=["i1"]), 0.1)
    decision = run_night(home, "bad", fewer, made_with=rules)
    check_unchanged(home, decision, "edges tonight")
    assert "[rules] changed since the standing publication" in decision.reason


def test_empty_lists_take_no_place_even_by_hand(home, digests):
    everything = "select distinct users.user_id, items.item_id, 1, null, 1, 1, null"
    full = change_log(home, f"insert into raw.events {everything} from raw.events as users, raw.events as items")
    fit = "popularity", "score", fit_model(home, "bad", full, ALL_EDGES, "popularity"), full[ALL_EDGES]
    champion = promotion.load_champion(home)
    assessment = promotion.Assessment(replace(champion, model="popularity"), champion)
    words = "0 recommendations for 240 users, of whom 240 like all 200 items"
    check_unchanged(home, publish_fit(home, "bad", LIMITS, *fit, assessment=assessment).decision, words)
    for refused in (replace(assessment, manual=True), replace(assessment, champion=None), None):
        with pytest.raises(OneclassError, match=words):
            publish_fit(home, "by hand", LIMITS, *fit, assessment=refused)
    assert home.published.resolve().name == "first"


@pytest.mark.usefixtures("few_items")
def test_a_wide_margin_lets_a_worse_one_and_the_night_after_a_rollback_is_judged_against_what_stands(home, digests):
    assert run_night(home, "second", digests, "popularity", limits=WIDE).promoted
    assert manual.roll_back(home, "by hand") == "first"
    assert "rolled back from run second to run first" in manual.format_status(home)
    assert run_night(home, "third", digests).champion == "mrf_dense/score"
    assert publications.load_current(home)["before"] == "first"  # to which a rollback would go, not to `second`
    shutil.rmtree(home.publications / "first")
    with pytest.raises(InputError, match="run first is not kept. Kept are: third, second"):
        manual.roll_back(home, "by hand")
    (home.publications / "second" / "recommendations.parquet").write_bytes(b"?")
    with pytest.raises(checksums.DamagedFile):
        manual.roll_back(home, "by hand", "second")
    assert home.published.resolve().name == "third"


@pytest.mark.parametrize(
    ("check", "given", "refused"),
    [
        (gates.check_better_than_random, (Mean(0.479, 0.01, 60),), True),  # by more than two errors below 1/2
        (gates.check_better_than_random, (Mean(0.481, 0.01, 60),), False),
        # From .4 to .1 with a joint error of 1.5 sd, five times which are .3 at sd = .04.
        (gates.check_drop, (Mean(0.1, 0.0399, 60), Mean(0.4, 0.0399 * 5**0.5 / 2, 60)), True),
        (gates.check_drop, (Mean(0.1, 0.0401, 60), Mean(0.4, 0.0401 * 5**0.5 / 2, 60)), False),
        # However small the errors, a fall of up to MAX_DROP of the earlier value may be the data's.
        (gates.check_drop, (Mean((1 - gates.MAX_DROP) * 0.4 + 1e-6, 1e-9, 60), Mean(0.4, 1e-9, 60)), False),
        (gates.check_drop, (Mean((1 - gates.MAX_DROP) * 0.4 - 1e-6, 1e-9, 60), Mean(0.4, 1e-9, 60)), True),
        (gates.check_count, (800, 1000, 0.8), False),
        (gates.check_count, (799, 1000, 0.8), True),
    ],
)  # fmt: skip
def test_gates_open_and_shut_at_their_bounds(check, given, refused):
    assert (check("slim/score", *given) is not None) == refused


def test_a_model_of_the_latest_run_is_published_by_hand(home, digests):
    decision = manual.promote_model(home, "by-hand", "popularity").decision
    assert decision.promoted and decision.reason.startswith("by hand: popularity of run first")
    assert home.published.resolve().name == "by-hand"
    with publications.open_published_tables(home) as connection:
        assert connection.execute("select count(*) > 0 from metrics").fetchone() == (True,)
    assert promotion.load_champion(home).name == "popularity/score"
    with pytest.raises(InputError, match="--model slim: run first did not fit it"):
        manual.promote_model(home, "again", "slim")


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
        ("strong_generalization", ["next_events", "strong_generalization"], "strong_generalization"),
        ("auto", ["cold_items"], "leave_one_out"),  # cold_items never chooses
    ],
)
def test_the_protocol_that_decided_is_known_from_a_runs_tables(home, setting, judged, protocol):
    write_tables(home)
    with runs.record_run(home, "run", "backfill", {"publish": {"protocol": setting}}):
        pass
    with warehouse.open_warehouse(home) as connection:
        for name in dict.fromkeys([*judged, "leave_one_out"]):
            for metric in ("ndcg@100", *([VALIDATION_METRIC] if name in judged else [])):
                row = ["run", name, "wmf", "score", metric, 0.5, 0.1, 40]
                connection.execute("insert into evaluation.metrics values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        assert find_deciding_protocol(connection, "run") == protocol
