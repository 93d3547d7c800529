"""A model of one's own in ten lines keeps the contract of every model, and is saved, evaluated, tuned, and found."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass import OwnModel, Popularity, evaluate, tune
from oneclass.models.registry import MODELS
from oneclass.models.settings import NumericRange
from oneclass.testing import check_model

LIKES = [(user, item) for user in range(60) for item in range(20) if user % 2 == item % 2 and (user + item) % 7]


class Cosine(OwnModel):
    """Cosines between items."""

    power: float = 0.5
    is_deterministic = True

    def fit(self, matrix):
        degrees = np.maximum(self.item_degrees, 1).astype(np.float32) ** -self.power
        self.similarity = csr_matrix((matrix.T @ matrix).multiply(degrees[:, None] * degrees))
        self.similarity.setdiag(0)
        self.edges, self.kind = matrix.nnz, "cosines"

    def scores(self, histories):
        return histories @ self.similarity


class Forgetful(Cosine):
    """Draws a score without its seed."""

    def scores(self, histories):
        return np.random.random(histories.shape)


class Rounding(Popularity):
    """Saves another number than it learned."""

    def _fit(self, interactions, options):
        super()._fit(interactions, options)
        self.shift = np.float64(0.25)

    def _scores(self, histories, users, score):
        return super()._scores(histories, users, score) + np.float32(self.shift)

    def _arrays(self):
        return {"shift": np.array(1)}


class Drawing(Cosine):
    """Claims to draw."""

    is_deterministic = False


class Double(Popularity):
    def _scores(self, histories, users, score):
        return super()._scores(histories, users, score).astype(np.float64)


BROKEN = {
    Forgetful: "scores depend on the block of users",
    Rounding: "scores change when the model is saved and loaded",
    Drawing: "another seed: set is_deterministic",
    Double: "return finite float32",
}


def test_a_model_of_ones_own_keeps_the_contract():
    check_model(Cosine())
    check_model(Popularity(), is_personal=False)
    with pytest.raises(AssertionError, match="a history: items of others outrank those of the own group"):
        check_model(Popularity())


@pytest.mark.parametrize("model", BROKEN)
def test_what_a_model_gets_wrong_is_found(model):
    with pytest.raises((AssertionError, RuntimeWarning), match=BROKEN[model]):
        check_model(model(), is_personal=issubclass(model, Cosine) and model is not Forgetful)


def test_settings_are_by_keyword_and_what_is_learned_is_saved(tmp_path):
    model = Cosine(power=0.3, seed=4).fit(LIKES)
    assert repr(model) == "Cosine(power=0.3, seed=4)" and Cosine.name == "cosine"
    with pytest.raises(TypeError, match="no parameter 'powr'; did you mean 'power'"):
        Cosine(powr=1)
    model.save(tmp_path)
    loaded = Cosine.load(tmp_path)
    assert loaded.power == 0.3 and (loaded.edges, loaded.kind) == (len(LIKES), "cosines")
    assert loaded.recommend(n=3).equals(model.recommend(n=3))


def test_it_is_evaluated_tuned_and_known_by_its_location():
    found = evaluate([Cosine(), Popularity()], LIKES, protocol="leave_one_out", metrics=["ndcg@10"], threads=1)
    assert found.table()["model"].to_list() == ["cosine", "popularity"] and not found.failed
    search = tune(Cosine(), LIKES, trials=3, space={"power": NumericRange(0.0, 1.0)}, threads=1)
    assert search.trials["power"].n_unique() == 3 and isinstance(search.best, Cosine)
    by_location = MODELS[f"{__name__}:Cosine"]
    assert by_location.name == f"{__name__}:Cosine" and by_location(power=1).fit(LIKES).edges == len(LIKES)


def test_what_an_author_forgets_is_said():
    class Narrow(OwnModel):
        def fit(self, matrix):
            pass

        def scores(self, histories):
            return np.zeros((1, 3))

    with pytest.raises(
        ValueError, match=r"Narrow.scores: returns an array of shape \(1, 3\) .* \(1, 20\); return a row"
    ):
        Narrow().fit(LIKES).recommend(users=[1])

    class Listed(Cosine):
        def fit(self, matrix):
            self.names = {"tea": 1}

    with pytest.raises(TypeError, match="Listed.fit: sets names, a dict, which cannot be saved; set arrays"):
        Listed().fit(LIKES).save("nowhere")
