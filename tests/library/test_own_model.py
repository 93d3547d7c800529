"""A model of one's own in ten lines keeps the contract of every model, and is saved, evaluated, tuned, and found."""

import doctest

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass import Model, OwnModel, Popularity, evaluate, tune
from oneclass.models import own_model
from oneclass.models.registry import MODELS
from oneclass.models.settings import NumericRange
from tests.models.model_contract import FullContract

LIKES = [(user, item) for user in range(60) for item in range(20) if user % 2 == item % 2 and (user + item) % 7]


class Cosine(OwnModel):
    """Cosines between items."""

    power: float = 0.5
    is_deterministic = True

    def fit(self, matrix):
        degrees = np.maximum(self.item_degrees, 1).astype(np.float32) ** -self.power
        self.similarity = csr_matrix((matrix.T @ matrix).multiply(degrees[:, None] * degrees))
        self.similarity.setdiag(0)
        self.edges = matrix.nnz

    def scores(self, histories):
        return histories @ self.similarity


class TestCosine(FullContract):
    model = Cosine
    test_settings_are_documented_strict_and_survive_json = None  # `power` has no sentence


def test_settings_are_by_keyword_and_what_is_learned_is_saved(tmp_path):
    model = Cosine(power=0.3, seed=4).fit(LIKES)
    assert repr(model) == "Cosine(power=0.3, seed=4)" and Cosine.name == "cosine"
    with pytest.raises(TypeError, match="no parameter 'powr'; did you mean 'power'"):
        Cosine(powr=1)
    model.save(tmp_path)
    loaded = Cosine.load(tmp_path)
    assert loaded.power == 0.3 and loaded.edges == len(LIKES)
    assert loaded.recommend(n=3).equals(model.recommend(n=3))


def test_it_is_evaluated_tuned_and_known_by_its_location():
    found = evaluate([Cosine(), Popularity()], LIKES, protocol="leave_one_out", metrics=["ndcg@10"], threads=1)
    assert found.table()["model"].to_list() == ["cosine", "popularity"] and not found.failed
    search = tune(Cosine(), LIKES, trials=3, space={"power": NumericRange(0.0, 1.0)}, threads=1)
    assert search.trials["power"].n_unique() == 3 and isinstance(search.best, Cosine)
    by_location = MODELS[f"{__name__}:Cosine"]
    assert by_location.name == f"{__name__}:Cosine" and by_location(power=1).fit(LIKES).edges == len(LIKES)


def test_a_model_without_settings_has_only_a_seed_and_threads():
    class Plain(Model):
        def _fit(self, interactions, options):
            self.order = np.arange(interactions.shape[1], dtype=np.float32)

        def _scores(self, histories, users, score):
            return np.tile(self.order, (histories.shape[0], 1))

    model = Plain(seed=3).fit(LIKES)
    assert model.get_params() == {"seed": 3, "threads": 1} and Plain.name == "plain"
    assert model.recommend([[0]], n=1)["item_id"].to_list() == [19]


def test_what_an_author_forgets_is_said():
    class Narrow(OwnModel):
        def fit(self, matrix):
            pass

        def scores(self, histories):
            return np.zeros((1, 3))

    class Empty(OwnModel):
        pass

    with pytest.raises(
        ValueError, match=r"Narrow.scores: returns an array of shape \(1, 3\) .* \(1, 20\); return a row"
    ):
        Narrow().fit(LIKES).recommend(users=[1])
    with pytest.raises(NotImplementedError, match=r"Empty: define fit\(self, matrix\)"):
        Empty().fit(LIKES)


def test_the_example_of_the_class_runs():
    (example,) = doctest.DocTestFinder(recurse=False).find(own_model.OwnModel, "OwnModel")
    failures = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert not failures, "".join(failures)
