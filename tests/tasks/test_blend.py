"""The blend of a run: components are added if the blend gets better; others are left out, with their figures."""

from datetime import date
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field

from oneclass.models.base import Model
from oneclass.models.blend import BlendSettings
from oneclass.models.evaluation.metrics import Comparison
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks import blend as stage
from oneclass.tasks.blend import choose_components, is_worth_blending
from oneclass.tasks.stores import matrices, warehouse
from tests.conftest import home_in, log_into
from tests.tasks.conftest import copy_of, split_likes, train_model

PROTOCOL = "strong_generalization"
DAY = date(2026, 3, 1)


class HalfSettings(ModelSettings):
    first: int = Field(0, description="Of the thirty items that it knows.")


class Half(Model):
    """Counts of items liked together, for thirty of the sixty items; the others are all alike."""

    name = "half"
    Settings = HalfSettings
    fits: ClassVar[list] = []

    def _fit(self, interactions, options):
        self.fits.append((self.name, interactions.shape[0]))
        together = (interactions.T @ interactions).toarray().astype(np.float32)
        known = np.zeros(60, dtype=bool)
        known[self.settings.first : self.settings.first + 30] = True
        self.together = np.where(known[:, None] & known, together, 0)

    def _scores(self, histories, users, score):
        return np.asarray(histories @ self.together, dtype=np.float32)

    def _arrays(self):
        return {"together": self.together}


class OtherHalf(Half):
    name = "other_half"


class Nothing(Half):
    """Knows no item."""

    name = "nothing"

    def _fit(self, interactions, options):
        self.together = np.zeros((60, 60), dtype=np.float32)


@pytest.fixture(autouse=True)
def halves(monkeypatch):
    for kind in (Half, OtherHalf, Nothing):
        monkeypatch.setitem(MODELS, kind.name, kind)
    monkeypatch.setattr(Half, "fits", [])


@pytest.fixture(scope="module")
def split_once(tmp_path_factory):
    """(home, digest): 500 users of two tastes in the first thirty items and two, by themselves, in the other thirty."""
    home, generator = home_in(tmp_path_factory.mktemp("split")), np.random.default_rng(4)
    events = [("all", f"i{item:02}", 1) for item in range(60)]  # so that columns are in this order
    for user in range(500):
        tastes = generator.integers(2, size=2)
        places = [half * 30 + item for half in (0, 1) for item in range(30) if item % 2 == tastes[half]]
        items = generator.choice(places, size=11, replace=False)
        events += [(f"u{user:03}", f"i{item:02}", 1) for item in items]
    log_into(home, events[: len(events) * 4 // 5])
    log_into(home, events[len(events) * 4 // 5 :], file_id=2)
    return home, split_likes(home, PROTOCOL, held_out_share=0.2)[PROTOCOL]


digest = copy_of("split_once")


def fit_components(home, digest, **settings):
    protocol = matrices.load_split(home, digest).protocol
    fits = {name: train_model(home, digest, name, of, protocol=protocol, seed=1) for name, of in settings.items()}
    return {"digests": {name: fit.digest for name, fit in fits.items()}, "settings": settings}


def fit_blend(home, digest, **of):
    judged = [(digest, of.pop("digests"))]
    found = choose_components(home, "run", judged=judged, **{"protocol": PROTOCOL, "seed": 1, "day": DAY, **of})
    with warehouse.open_warehouse(home, read_only=True) as connection:
        [row] = connection.sql("select * from operations.model_settings where model = 'blend'").pl().to_dicts()
    return found.settings, row


def two_halves(home, digest):
    return fit_components(home, digest, half=HalfSettings(), other_half=HalfSettings(first=30))


def test_models_that_know_different_items_are_added_and_the_choice_from_the_same_fits_is_taken(
    home, digest, monkeypatch
):
    of = two_halves(home, digest)
    rejected = fit_components(home, digest, half=HalfSettings(), nothing=HalfSettings())
    found, row = chosen = fit_blend(home, digest, **of)
    assert {one.model for one in found.components} == {"half", "other_half"}
    assert row["origin"] == "search" and row["reached"] > row["at_start"] + 0.02
    assert BlendSettings.model_validate_json(row["settings"]) == found
    none, row = fit_blend(home, digest, **rejected)
    assert none is None and row["origin"] == "default" and row["searched_on"] is None
    assert "no blend gains more than its error on its best component" in row["reason"]
    monkeypatch.setattr(stage, "search_weights", None)
    assert "not two models" in fit_blend(home, digest, **fit_components(home, digest, half=HalfSettings()))[1]["reason"]
    assert fit_blend(home, digest, **rejected) == (none, row)
    assert fit_blend(home, digest, **of) == chosen
    with pytest.raises(TypeError, match="not callable"):
        fit_blend(home, digest, **{**of, "seed": 2})


def test_no_blend_is_made_of_users_with_too_few_edges_to_cut_some_off(home):
    likes = [(f"u{user}", f"i{(user + place) % 60:02}", 1) for place in range(5) for user in range(60)]
    log_into(home, likes[:240])
    log_into(home, likes[240:], file_id=2)
    digest = split_likes(home, "given", plan={"given_files": ([1], [2])})["given"]
    found, row = fit_blend(home, digest, **two_halves(home, digest), protocol="given")
    assert found is None and "0 validation users are too few" in row["reason"]


@pytest.mark.parametrize(
    ("gain", "gain_in_s", "worth"),
    [
        (0.0101, -0.5, True), (0.01, -0.5, False), (0.01, 0.01, False),  # more than the error, which is 0.01
        (0.0001, 0.0101, True), (0.0, 0.5, False), (-0.0101, 0.5, False),  # for S, nDCG has to be higher as well
    ],
)  # fmt: skip
def test_a_blend_needs_a_gain_of_more_than_its_error(gain, gain_in_s, worth):
    assert is_worth_blending(Comparison(gain, 0.01, 0.3, 100), Comparison(gain_in_s, 0.01, 0.3, 100)) is worth


def test_on_a_given_split_it_is_weighed_on_edges_cut_from_training_without_what_cannot_be_fitted_to_the_rest(
    home, digest, monkeypatch, caplog
):
    digest = split_likes(home, "given", plan={"given_files": ([1], [2])})["given"]
    of = fit_components(home, digest, nothing=HalfSettings(), **two_halves(home, digest)["settings"])
    monkeypatch.setattr(Nothing, "_fit", lambda model, interactions, options: 1 / 0)
    whole, Half.fits[:] = matrices.load_split(home, digest).train, []
    found, row = fit_blend(home, digest, **of, protocol="given")
    assert {one.model for one in found.components} == {"half", "other_half"} and row["reached"] > row["at_start"] + 0.02
    assert row["metric"] == "ndcg@20" and row["edges"] < whole.nnz and len(Half.fits) == 2
    assert "blend: nothing is left out: division by zero" in caplog.text
