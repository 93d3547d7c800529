"""Items of the history again, or new ones: two calibrated lists merged by probability.

For an item of the history the probability is that of `repeat`. For another one at the rank r of the component's list
without the history, it is

    P(u takes i) = 1 - exp(-n_u p(r)),

where n_u is the number of new items that u is expected to take in the window, by a Poisson regression on the user's
history, and p(r) says how new items spread over the ranks of the list (`calibration.fit_rank_curve`). Both are fitted
on the held-out window of `repeat`; the component is fitted once more on what came before it. So the share of new items
is each user's own: loyal users get more of the one list, curious ones more of the other. Merging by probability is the
probability ranking principle (Robertson 1977); Li et al. 2023 evaluate the parts of repetition and exploration apart.
"""

from importlib import import_module
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.sparse import csr_matrix
from scipy.special import logit

from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages
from oneclass.models.numerics.validation import row_sums
from oneclass.models.repeat.calibration import fit_poisson, fit_rank_curve, rank_probabilities
from oneclass.models.repeat.model import Repeat, RepeatSettings, active_rows
from oneclass.models.repeat.returns import decayed_counts, entry_ages
from oneclass.models.repeat.window import hold_out_window
from oneclass.models.settings import ModelSettings

MAX_USERS = 4_000  # whose lists the curve is fitted on
USERS_PER_BLOCK = 256


class RepeatMixtureSettings(RepeatSettings):
    """The settings of `repeat`, and the model of new items."""

    component: str = Field("mrf_sparse", description="The model that ranks items outside the history, by its name.")
    component_score: str = Field("score", description="One of its scores.")
    component_settings: dict[str, Any] = Field(
        {}, description="Its settings; those that are not named have their defaults."
    )

    @model_validator(mode="after")
    def _check_component(self) -> Self:
        RepeatMixture.component_settings(self)
        return self

    @property
    def reads_order(self) -> bool:
        """Whether the component's scores depend on the order of a history."""
        return self.parse_component().reads_order

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether the fit of the component uses explicit negatives."""
        return self.parse_component().reads_explicit_negatives

    def parse_component(self) -> ModelSettings:
        """Return the settings of the component."""
        (kind,) = RepeatMixture.component_settings(self)
        return kind.Settings.from_saved(self.component_settings)


class RepeatMixture(Model[RepeatMixtureSettings]):
    """`repeat` for the items of the history, any other model for new items, merged by calibrated probabilities.

    Where no user of the log takes an item twice, the list is that of the component.

    Attributes:
        again: the fitted `Repeat`.
        new: the fitted component.
        rate: float64 (4,), the coefficients of log n_u.
        curve: float64 (3,), of `fit_rank_curve`.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import RepeatMixture
        >>> plays = csr_matrix(np.kron(np.eye(2), np.ones((10, 5))) * np.arange(1, 11))
        >>> model = RepeatMixture(RepeatMixture.Settings(component="mrf_dense")).fit(plays)
        >>> np.argsort(-model.scores(plays[:1]))[0, :4].tolist()
        [4, 3, 2, 1]
    """

    name = "repeat_mixture"
    Settings = RepeatMixtureSettings

    again: Repeat
    new: Model
    rate: np.ndarray
    curve: np.ndarray

    @classmethod
    def component_settings(cls, settings: RepeatMixtureSettings) -> list[type[Model]]:
        """Return the component's estimator.

        Raises:
            ValueError: the component is unknown, is the mixture itself, or does not have the score.
        """
        kinds = import_module("oneclass.models.registry").MODELS  # by name, as a family imports no other
        name, score = settings.component, settings.component_score
        if name not in kinds or name == cls.name:
            raise ValueError(f"component: {name} is no model of new items")
        kind = kinds[name]
        if score not in kind.score_names:
            raise ValueError(f"component_score: {name} has no score {score}; it has {', '.join(kind.score_names)}")
        return [kind]

    @classmethod
    def fit_bytes(cls, settings: RepeatMixtureSettings, shape: tuple[int, int], edges: int) -> int:
        """Estimate the memory of the component's two fits, of which both are held for a while."""
        (kind,) = cls.component_settings(settings)
        return 2 * kind.fit_bytes(settings.parse_component(), shape, edges)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        own = {name: getattr(self.params, name) for name in RepeatSettings.model_fields}
        self.again = Repeat(RepeatSettings(**own), seed=self.seed, threads=self.threads).fit(interactions)
        settings = self.params.parse_component()
        new = options.load_component(self.params.component, settings)
        self.new = self._fit_component(settings, interactions, options) if new is None else new
        component = self.new.params.model_dump(mode="json")
        resolved = {name: getattr(self.again.params, name) for name in RepeatSettings.model_fields}
        self.params = self.params.model_copy(update={**resolved, "component_settings": component})
        self._calibrate(interactions, settings, options)

    def _fit_component(self, settings: ModelSettings, interactions: csr_matrix, options: FitOptions) -> Model:
        (kind,) = self.component_settings(self.params)
        own = FitOptions(validation=options.validation, explicit_negatives=options.explicit_negatives)
        return kind(settings, seed=self.seed, threads=self.threads).fit(interactions, own)

    def _calibrate(self, interactions: csr_matrix, settings: ModelSettings, options: FitOptions) -> None:
        """Fit the rate of new items and the curve of their ranks on the held-out window."""
        earlier, later = hold_out_window(interactions, self.params.window)
        rows = active_rows(earlier, later)
        if not len(rows):
            self.rate, self.curve = np.zeros(4), fit_rank_curve(np.empty(0, dtype=np.int64), self.item_count)
            return
        rows = rows[:: -(-len(rows) // MAX_USERS)]
        before = self._fit_component(settings, earlier, options)
        histories = earlier[rows]
        targets = _new_items(histories, later[rows], before.item_degrees > 0)
        self.rate = fit_poisson(self._rate_features(histories), np.diff(targets.indptr).astype(np.float64))
        ranks = []
        for first in range(0, len(rows), USERS_PER_BLOCK):
            block = slice(first, first + USERS_PER_BLOCK)
            scores = before.scores_of_training_users(histories[block], rows[block], self.params.component_score)
            of_block = targets[block]
            users = np.repeat(np.arange(of_block.shape[0]), np.diff(of_block.indptr))
            ranks.append(_rank_new_items(scores, histories[block])[users, of_block.indices])
        self.curve = fit_rank_curve(np.concatenate(ranks), int(np.count_nonzero(before.item_degrees)))

    def _rate_features(self, histories: csr_matrix) -> np.ndarray:
        """Return what the number of new items depends on, float64 (4, users): a constant; the log of the decayed number
        of first events; the log-odds of the user's share of repeats; and the log of the number of items.
        """
        oldest = entry_ages(histories)[1].astype(np.int32)
        firsts = csr_matrix((np.ones(histories.nnz), histories.indices, histories.indptr), shape=histories.shape)
        if getattr(histories, "event_ages", None) is not None:
            firsts = with_event_ages(firsts, EventAges(np.arange(histories.nnz + 1), oldest))
        first_events = row_sums(histories.indptr, decayed_counts(firsts, self.params.half_life))
        items = np.diff(histories.indptr)
        shares = logit(self.again.user_shares(histories))
        return np.stack([np.ones(len(items)), np.log1p(first_events), shares, np.log1p(items)])

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_component = self.new.scores_of_training_users(histories, users, self.params.component_score)
        rates = np.exp(sum(b * x for b, x in zip(self.rate, self._rate_features(histories), strict=True)))
        probabilities = rank_probabilities(self.curve, np.arange(histories.shape[1]))
        scores = np.empty(histories.shape, dtype=np.float32)
        ranks = _rank_new_items(of_component, histories)
        for row, rate in enumerate(rates):
            scores[row] = (-np.expm1(-rate * probabilities))[ranks[row]]
        rows = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
        scores[rows, histories.indices] = self.again.again_probabilities(histories)
        return scores

    def _arrays(self) -> dict[str, np.ndarray]:
        parts = {"again": self.again, "new": self.new}
        return {"rate": self.rate, "curve": self.curve} | {
            f"{part}.{name}": array
            for part, model in parts.items()
            for name, array in {"item_degrees": model.item_degrees, **model._arrays()}.items()
        }

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.rate, self.curve = arrays["rate"], arrays["curve"]
        own = {name: getattr(self.params, name) for name in RepeatSettings.model_fields}
        (kind,) = self.component_settings(self.params)
        self.again = Repeat(RepeatSettings(**own), seed=self.seed, threads=self.threads)
        self.new = kind(self.params.parse_component(), seed=self.seed, threads=self.threads)
        for part, model in (("again", self.again), ("new", self.new)):
            of_part = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{part}.")}
            model.item_degrees = of_part.pop("item_degrees")
            model._restore(of_part)
            model._cache = {}


def _new_items(histories: csr_matrix, later: csr_matrix, is_known: np.ndarray) -> csr_matrix:
    """Return the items of the window outside the histories that were known before it."""
    rows = np.repeat(np.arange(later.shape[0]), np.diff(later.indptr))
    seen = csr_matrix((np.ones(histories.nnz), histories.indices, histories.indptr), shape=histories.shape)
    is_new = (np.asarray(seen[rows, later.indices]).ravel() == 0) & is_known[later.indices]
    indptr = np.concatenate([[0], np.cumsum(is_new)])[later.indptr]
    return csr_matrix((np.ones(int(indptr[-1])), later.indices[is_new], indptr), shape=later.shape)


def _rank_new_items(scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """Return the rank of every item in each list without the history, int (users, items); that of others is the last.

    Of equal scores the lower item comes first, as in every list.
    """
    masked = scores.copy()
    masked[np.repeat(np.arange(len(scores)), np.diff(histories.indptr)), histories.indices] = -np.inf
    order = np.argsort(-masked, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(scores.shape[1]), scores.shape), axis=1)
    return ranks
