"""Sweeps on a small log and a real Prefect server: stored rows, reused fits, and failures."""

import json
import shutil

import duckdb
import numpy as np
import pytest

from oneclass.flows import commands, sweep_flow
from oneclass.models import registry
from oneclass.models.evaluation import metrics
from oneclass.models.registry import MODELS
from oneclass.tasks import sweep as sweeps
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.sweep import SWEEPS, SweepPlan, refit_settings

ML = ["--dataset", "ml-latest-small", "--threads", "2"]
SMALL = {
    "penalties": SweepPlan("mrf_dense", "leave_one_out", ({"l2": 2.0}, {"l2": 200.0})),
    "unseen": SweepPlan("mrf_dense", "strong_generalization", ({"alpha": 0.0},)),
}


@pytest.fixture(autouse=True)
def small_sweeps(prefect_server, monkeypatch):
    monkeypatch.setattr(sweeps, "SWEEPS", SMALL)
    monkeypatch.setattr(sweep_flow, "SWEEPS", SMALL)


def run_sweep(home, ratings, *arguments):
    return commands.main("sweep", [*ML, "--home", str(home), "--source", str(ratings), *arguments])


def query_rows(home, text):
    with duckdb.connect(str(home / "ml-latest-small" / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(text).fetchall()


@pytest.fixture(scope="module")
def penalties_kept(prefect_server, ratings, tmp_path_factory):
    """The home that one sweep left."""
    home = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "SWEEPS", SMALL)
        patch.setattr(sweep_flow, "SWEEPS", SMALL)
        assert run_sweep(home, ratings, "--sweep", "penalties") == 0
    return home


@pytest.fixture
def after_penalties(penalties_kept, tmp_path):
    """A home of one's own after that sweep."""
    return shutil.copytree(penalties_kept, tmp_path / "home", symlinks=True)


@pytest.mark.slow
def test_refits_are_kept_with_what_they_score(tmp_path, ratings, capsys):
    assert run_sweep(tmp_path, ratings, "--set", "mrf_dense.alpha=0.5") == 0
    output = capsys.readouterr().out
    assert "penalties, leave_one_out, mean_rank:" in output and "mrf_dense l2=200" in output
    assert query_rows(
        tmp_path, "select distinct sweep, protocol, model, settings from evaluation.sweeps order by all"
    ) == [
        ("penalties", "leave_one_out", "mrf_dense", '{"l2": 2.0}'),
        ("penalties", "leave_one_out", "mrf_dense", '{"l2": 200.0}'),
        ("unseen", "strong_generalization", "mrf_dense", '{"alpha": 0.0}'),
    ]
    home = Home(tmp_path, "ml-latest-small")
    for folder in (home.models / "mrf_dense").iterdir():
        model = registry.load_model("mrf_dense", folder)
        varied = json.dumps({"alpha": 0.0} if model.settings.alpha == 0 else {"l2": model.settings.l2})
        split = matrices.load_split(home, json.loads((folder / "fit.json").read_text())["facts"]["matrices"])
        of_users, edge_ranks, *_ = rank_part_targets(model, "score", split.parts["test"])
        kept = query_rows(
            tmp_path,
            f"select metric, value, users from evaluation.sweeps where degree_low is null and settings = '{varied}'",
        )
        means = metrics.average_over_users(of_users)
        assert model.settings.alpha == (0 if varied == '{"alpha": 0.0}' else 0.5)
        assert {metric: (value, users) for metric, value, users in kept} == {
            metric: (mean.value, mean.users) for metric, mean in means.items()
        }
        bins = query_rows(
            tmp_path,
            "select side, degree_low, degree_high, metric, value, users from evaluation.sweeps "
            f"where side is not null and settings = '{varied}'",
        )
        part = split.parts["test"]
        item_degrees = np.bincount(split.train.indices, minlength=split.train.shape[1])
        degrees = {"user": np.diff(part.histories.indptr), "item": item_degrees[part.targets.indices]}
        assert {side for side, *_ in bins} == (set(degrees) if split.protocol == "leave_one_out" else set())
        for side, low, high, metric, value, users in bins:
            inside = edge_ranks[(degrees[side] >= low) & (degrees[side] <= high)]
            points = {name: np.percentile(inside, at) for name, at in metrics.PERCENTILES.items()}
            assert users == len(inside)
            assert value == pytest.approx({"mean_rank": inside.mean(), **points}[metric], abs=1e-12)
        for side in {side for side, *_ in bins}:
            of_side = {(low, users) for which, low, _, _, _, users in bins if which == side}
            assert sum(users for _, users in of_side) == len(edge_ranks)


@pytest.mark.slow
def test_a_sweep_can_keep_what_each_pass_left(tmp_path, ratings, monkeypatch):
    plan = SweepPlan("hpf", "leave_one_out", ({"factors": 3, "max_iterations": 4},), each_epoch="bounds")
    monkeypatch.setattr(sweeps, "SWEEPS", {"passes": plan})
    monkeypatch.setattr(sweep_flow, "SWEEPS", {"passes": plan})
    assert run_sweep(tmp_path, ratings) == 0
    [folder] = (Home(tmp_path, "ml-latest-small").models / "hpf").iterdir()
    bounds = registry.load_model("hpf", folder).bounds
    kept = query_rows(tmp_path, "select metric, value from evaluation.sweeps where metric like 'bounds@%' order by all")
    assert kept == sorted((f"bounds@{at}", value) for at, value in enumerate(bounds.tolist(), 1)) and kept


@pytest.mark.slow
def test_a_sweep_can_keep_how_like_is_spread(tmp_path, ratings, monkeypatch):
    plan = SweepPlan("paired_symbols", "leave_one_out", ({"factors": 2, "iterations": 2, "r": 2.0},), like_shares=True)
    monkeypatch.setattr(sweeps, "SWEEPS", {"spread": plan})
    monkeypatch.setattr(sweep_flow, "SWEEPS", {"spread": plan})
    assert run_sweep(tmp_path, ratings) == 0
    home = Home(tmp_path, "ml-latest-small")
    [folder] = (home.models / "paired_symbols").iterdir()
    split = matrices.load_split(home, json.loads((folder / "fit.json").read_text())["facts"]["matrices"])
    model, part, expected = registry.load_model("paired_symbols", folder), split.parts["test"], {}
    for row, target in zip(*part.targets.nonzero(), strict=True):
        history = part.histories[row]
        like = model.like(history, users=part.rows[[row]], items=np.array([target]))
        degree = history.nnz
        low = degree if degree <= 40 else max(41, 1 << (degree.bit_length() - 1))
        expected.setdefault(low, []).append(min(int(like[0][0, 0] * 20), 19))
    kept = query_rows(tmp_path, "select score, side, degree_low, metric, value, users from evaluation.sweeps "
                 "where metric like 'like_share@%' order by all")  # fmt: skip
    assert kept == sorted(
        ("like", "user", low, f"like_share@{place / 20:.2f}", places.count(place) / len(places), len(places))
        for low, places in expected.items() for place in set(places)
    )  # fmt: skip


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped_and_takes_the_place_of_the_last(after_penalties, ratings):
    home = after_penalties
    before = query_rows(home, "select * exclude swept_at from evaluation.sweeps order by all")
    stamps = {file: file.stat().st_mtime_ns for file in home.rglob("fit.json")}
    assert len(stamps) == 2
    assert run_sweep(home, ratings, "--sweep", "penalties") == 0
    assert query_rows(home, "select * exclude swept_at from evaluation.sweeps order by all") == before
    assert {file: file.stat().st_mtime_ns for file in home.rglob("fit.json")} == stamps
    assert query_rows(home, "select count(*) from operations.model_fits") == [(0,)]  # no run's own fits
    assert query_rows(home, "select distinct flow, state from operations.runs") == [("sweep", "completed")]


@pytest.mark.slow
def test_a_refit_that_fails_leaves_the_last_results(after_penalties, ratings, monkeypatch, capsys):
    home = after_penalties
    before = query_rows(home, "select * from evaluation.sweeps order by all")

    def failing(of, **arguments):
        if arguments["settings"].l2 == 200.0:
            raise OneclassError("train: mrf_dense cannot be fitted: no memory")
        return kept(of, **arguments)

    kept = sweeps.load_or_fit
    monkeypatch.setattr(sweeps, "load_or_fit", failing)
    assert run_sweep(home, ratings, "--sweep", "penalties", "--seed", "3") == 1
    assert "no memory" in capsys.readouterr().err
    assert query_rows(home, "select * from evaluation.sweeps order by all") == before


@pytest.mark.slow
def test_the_report_of_the_last_run_is_made_anew(after_first, ratings):
    page = after_first / "ml-latest-small" / "report" / "index.html"
    page.unlink()
    assert run_sweep(after_first, ratings, "--sweep", "unseen") == 0
    assert "popularity" in page.read_text()


def test_an_unknown_sweep_is_reported(tmp_path, ratings, capsys):
    assert run_sweep(tmp_path, ratings, "--sweep", "everything") == 2
    assert "--sweep everything: unknown. Known: penalties, unseen." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name, one in SWEEPS.items() if one.model in MODELS])
def test_every_declared_refit_has_valid_settings_of_its_own(name, monkeypatch):
    monkeypatch.setattr(sweeps, "SWEEPS", SWEEPS)
    settings = refit_settings(SWEEPS[name], MODELS[SWEEPS[name].model].Settings())
    assert len({one.model_dump_json() for one in settings}) == len(SWEEPS[name].settings) > 1
    assert all("=" in sweeps.refit_label(name, place) for place in range(len(settings)))
