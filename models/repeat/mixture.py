"""Items of the history again, or new ones: two calibrated lists merged by probability.

For an item outside the history, at the rank r of the component's list without the history, the probability is

    P(u takes i) = 1 - exp(-n_u p(r)),

and for one of the history

    P(u takes i) = sigma(w_0 + w_1 logit(p_ui) + w_2 log(n_u p(r))),

where p_ui is that of `repeat` and r the rank that the item would have in the list: it may be taken like any other item,
without a memory. Here n_u is the number of new items that u is expected to take in the window, by a Poisson regression
on the user's history, and p(r) says how new items spread over the ranks of the list (`calibration.fit_rank_curve`). All
is fitted on the held-out window of `repeat`; the component is fitted once more on what came before it. So the share of
new items is each user's own: loyal users get more of the one list, curious ones more of the other. Merging by
probability is the probability ranking principle (Robertson 1977); Li et al. 2023, "A next basket recommendation reality
check", evaluate repetition and exploration apart.
"""

import json
from typing import Self

import numpy as np
from pydantic import Field, model_validator
from scipy.sparse import csr_matrix
from scipy.special import expit, logit

from oneclass.models.attributes.new_items import NewItems
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import EDGE_SECONDS, FitCost, LogSize
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages
from oneclass.models.numerics.validation import row_sums
from oneclass.models.repeat.calibration import fit_logistic, fit_poisson, fit_rank_curve, rank_probabilities
from oneclass.models.repeat.model import Repeat, active_rows
from oneclass.models.repeat.returns import decayed_counts, entry_ages, hold_out_window
from oneclass.models.settings import ModelSettings, find_component

MAX_USERS = 4_000  # whose lists the curve and the weights are fitted on
MAX_LOG_RATE = 30.0
REPEAT_ALONE = np.array([0.0, 1.0, 0.0])  # the prior of the weights
USERS_PER_BLOCK = 256


class RepeatMixtureSettings(ModelSettings):
    """The model of new items."""

    component: str = Field("mrf_sparse", description="The model that ranks items outside the history, by its name.")

    @model_validator(mode="after")
    def _check_component(self) -> Self:
        self.find_components()
        return self

    @property
    def reads_times(self) -> bool:
        """Whether the fit and scores depend on the ages of the events of a history: they do."""
        return True

    @property
    def reads_order(self) -> bool:
        """Whether the component's scores depend on the order of a history."""
        return self._component_settings.reads_order

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether the fit of the component uses explicit negatives."""
        return self._component_settings.reads_explicit_negatives

    def find_components(self) -> "list[type[Model]]":
        """Return the component's estimator."""
        return [find_component("component", self.component, None, RepeatMixture.name)]

    @property
    def _component_settings(self) -> ModelSettings:
        (kind,) = self.find_components()
        return kind.Settings()


class RepeatMixture(Model[RepeatMixtureSettings]):
    """`repeat` for the items of the history, any other model for new items, merged by calibrated probabilities.

    Where no user of the log takes an item twice, the list is that of the component.

    Attributes:
        again: the fitted `Repeat`.
        new: the fitted component.
        rate: float64 (4,), the coefficients of log n_u.
        curve: float64 (3,), of `fit_rank_curve`.
        weights: float64 (3,), w.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import RepeatMixture
        >>> plays = csr_matrix(np.kron(np.eye(2), np.ones((10, 5))) * np.arange(1, 11))
        >>> model = RepeatMixture(component="mrf_dense").fit(plays)
        >>> np.argsort(-model.scores(plays[:1]))[0, :2].tolist()
        [4, 3]
    """

    name = "repeat_mixture"
    Settings = RepeatMixtureSettings
    scores_cold_items = True

    again: Repeat
    new: Model
    rate: np.ndarray
    curve: np.ndarray
    weights: np.ndarray

    @classmethod
    def estimate_cost(cls, settings: RepeatMixtureSettings, log: LogSize) -> FitCost:
        """Estimate the cost of the component's two fits, of which both are held for a while."""
        (kind,) = settings.find_components()
        return FitCost(2 * kind.estimate_cost(kind.Settings(), log).bytes, EDGE_SECONDS * log.edges)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        self.again = Repeat(seed=self.seed, threads=self.threads).fit(interactions)
        new = options.load_component(self.params.component, self._make_component().settings)
        self.new = self._fit_component(interactions, options) if new is None else new
        self._calibrate(interactions, options)

    def _make_component(self) -> Model:
        (kind,) = self.params.find_components()
        return kind(seed=self.seed, threads=self.threads)

    def _fit_component(self, interactions: csr_matrix, options: FitOptions) -> Model:
        return self._make_component().fit(interactions, options.for_component())

    def _calibrate(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Fit the rate of new items, the curve of their ranks and the weights on the held-out window."""
        earlier, later = hold_out_window(interactions, self.again.parameters["window"])
        rows = active_rows(earlier, later)
        self.rate, self.weights = np.zeros(4), REPEAT_ALONE
        self.curve = fit_rank_curve(np.empty(0, dtype=np.int64), self.item_count)
        if not len(rows):
            return
        rows = rows[:: -(-len(rows) // MAX_USERS)]
        before = self._fit_component(earlier, options)
        histories = earlier[rows]
        is_new, happened = _label_items(histories, later[rows], before.item_degrees > 0)
        self.rate = fit_poisson(self._rate_features(histories), is_new.getnnz(axis=1).astype(np.float64))
        new_ranks, own_ranks = [], []
        for first in range(0, len(rows), USERS_PER_BLOCK):
            block = slice(first, first + USERS_PER_BLOCK)
            scores = before.scores(histories[block], users=rows[block])
            ranks = _rank_outside_history(scores, histories[block])
            new_ranks.append(ranks[is_new[block].nonzero()])
            own_ranks.append(ranks[_entry_rows(histories[block]), histories[block].indices])
        self.curve = fit_rank_curve(np.concatenate(new_ranks), int(np.count_nonzero(before.item_degrees)))
        features = self._again_features(histories, np.concatenate(own_ranks))
        self.weights, _ = fit_logistic(features, happened, REPEAT_ALONE)

    def _again_features(self, histories: csr_matrix, ranks: np.ndarray) -> np.ndarray:
        """Return what w weighs, float64 (3, entries), for items of the history with these ranks."""
        as_new = self._new_rates(histories)[_entry_rows(histories)] * rank_probabilities(self.curve, ranks)
        return np.stack([np.ones(histories.nnz), self.again.log_odds(histories), np.log(as_new)])

    def _new_rates(self, histories: csr_matrix) -> np.ndarray:
        """Return n_u, float64 (users,)."""
        eta = sum(b * x for b, x in zip(self.rate, self._rate_features(histories), strict=True))
        return np.exp(np.clip(eta, -MAX_LOG_RATE, MAX_LOG_RATE))

    def _rate_features(self, histories: csr_matrix) -> np.ndarray:
        """Return what the number of new items depends on, float64 (4, users): a constant; the log of the decayed number
        of first events; the log-odds of the user's share of repeats; and the log of the number of items.
        """
        oldest = entry_ages(histories)[1].astype(np.int32)
        firsts = csr_matrix((np.ones(histories.nnz), histories.indices, histories.indptr), shape=histories.shape)
        if getattr(histories, "event_ages", None) is not None:
            firsts = with_event_ages(firsts, EventAges(np.arange(histories.nnz + 1), oldest))
        first_events = row_sums(histories.indptr, decayed_counts(firsts, self.again.parameters["half_life"]))
        items = np.diff(histories.indptr)
        shares = logit(self.again.user_shares(histories))
        return np.stack([np.ones(len(items)), np.log1p(first_events), shares, np.log1p(items)])

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_component = self.new.scores(histories, users=users)
        ranks, rows = _rank_outside_history(of_component, histories), _entry_rows(histories)
        probabilities = rank_probabilities(self.curve, np.arange(histories.shape[1] + 1))
        scores = np.empty(histories.shape, dtype=np.float32)
        for row, rate in enumerate(self._new_rates(histories)):
            scores[row] = (-np.expm1(-rate * probabilities))[ranks[row]]
        features = self._again_features(histories, ranks[rows, histories.indices])
        scores[rows, histories.indices] = expit(sum(w * x for w, x in zip(self.weights, features, strict=True)))
        return scores

    def scores_of_new_items(self, histories: csr_matrix, new_items: NewItems, users: np.ndarray | None) -> np.ndarray:
        """Give a new item the probability of the rank that the component's score has in the list of other items."""
        histories = self.check_histories(histories, users)
        known = self.new.scores(histories, users=users)
        scores = new_items.predict(known)
        probabilities = rank_probabilities(self.curve, np.arange(histories.shape[1] + 1))
        for row, rate in enumerate(self._new_rates(histories)):
            history = histories.indices[histories.indptr[row] : histories.indptr[row + 1]]
            others = np.sort(-np.delete(known[row], history))
            # An empty history of an unseen user is scored by popularity, and so are the new items.
            if len(history) or users is not None:
                scores[row] = (-np.expm1(-rate * probabilities))[np.searchsorted(others, -scores[row])]
        return scores

    def _arrays(self) -> dict[str, np.ndarray]:
        parts, params = {"again": self.again, "new": self.new}, self.new.params.model_dump_json().encode()
        own = {"rate": self.rate, "curve": self.curve, "weights": self.weights}
        return {**own, "component": np.frombuffer(params, dtype=np.uint8)} | {
            f"{part}.{name}": array
            for part, model in parts.items()
            for name, array in {"item_degrees": model.item_degrees, **model._arrays()}.items()
        }

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.rate, self.curve, self.weights = (arrays[name] for name in ("rate", "curve", "weights"))
        self.again, self.new = Repeat(seed=self.seed, threads=self.threads), self._make_component()
        for part, model in (("again", self.again), ("new", self.new)):
            of_part = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{part}.")}
            model.item_degrees, model.item_features = of_part.pop("item_degrees"), self.item_features
            if part == "new":
                model.params = model.Settings.from_saved(json.loads(arrays["component"].tobytes()))
            model._restore(of_part)
            model._cache = {}


def _label_items(histories: csr_matrix, later: csr_matrix, is_known: np.ndarray) -> tuple[csr_matrix, np.ndarray]:
    """Return the items of the window outside the histories that were known before it, as a matrix with an entry for
    each; and whether each entry of the histories is in the window, float64 (entries,).
    """
    seen, taken = (
        csr_matrix((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        for matrix in (histories, later)
    )
    new = csr_matrix(csr_matrix(taken - taken.multiply(seen)).multiply(is_known[None, :]))
    new.eliminate_zeros()
    return new, np.asarray(taken[_entry_rows(histories), histories.indices]).ravel()


def _entry_rows(matrix: csr_matrix) -> np.ndarray:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _rank_outside_history(scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """Return the rank of every item in each list of the items outside the history, int (users, items).

    Of equal scores the lower item comes first, as in every list. An item of the history has the number of others with a
    higher score.
    """
    ranks = np.empty(scores.shape, dtype=np.int64)
    for row, of_row in enumerate(scores):
        own = histories.indices[histories.indptr[row] : histories.indptr[row + 1]]
        masked = -of_row
        masked[own] = np.inf
        order = np.argsort(masked, kind="stable")
        ranks[row, order] = np.arange(len(order))
        ranks[row, own] = np.searchsorted(masked[order[: len(order) - len(own)]], -of_row[own])
    return ranks
