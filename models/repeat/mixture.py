"""Items of the history again, or new ones: two calibrated lists merged by probability.

An item of the history has the probability of `repeat`. An item outside it, above which the component ranks r others
outside it, has the probability

    P(u takes i) = sigma(b'x_u + slope log(1 + r)),    slope < 0,

x_u being a constant, the log-odds of the user's share of repeats and the logarithm of 1 + the items of the history. b
and the slope are fitted on the held-out window of `repeat`; the component is fitted once more on what came before it.
So the share of new items is each user's own: loyal users get more of the one list, curious ones more of the other.
Merging by probability is the probability ranking principle (Robertson 1977).
"""

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from scipy.special import expit, logit

from oneclass.models.attributes.new_items import NewItems
from oneclass.models.base import Model
from oneclass.models.components import Combination, CombinationSettings, find_component
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import EDGE_SECONDS, FitCost, LogSize
from oneclass.models.repeat.model import Repeat, active_rows, fit_logistic
from oneclass.models.repeat.returns import hold_out_window

MAX_USERS, MAX_RANKS = 2_000, 200  # whose lists, and of which so many items, the regression reads
MAX_SLOPE = -0.01  # keeps the order of the component's list
PRIOR = np.array([0.0, 0.0, 0.0, -1.0])
USERS_PER_BLOCK = 256


class RepeatMixtureSettings(CombinationSettings):
    """The model of new items."""

    component: str = Field("mrf_sparse", description="The model that ranks items outside the history, by its name.")

    def find_components(self) -> "list[type[Model]]":
        """Return the estimators of the items of the history and of the others."""
        return [Repeat, find_component("component", self.component, None, RepeatMixture.name)]


class RepeatMixture(Combination[RepeatMixtureSettings]):
    """`repeat` for the items of the history, any other model for new items, merged by calibrated probabilities.

    Where no user of the log takes an item twice, the list of new items is that of the component.

    Attributes:
        coefficients: float64 (4,), b and the slope.

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

    @classmethod
    def estimate_cost(cls, settings: RepeatMixtureSettings, log: LogSize) -> FitCost:
        """Estimate the cost of the component's two fits, of which both are held for a while."""
        _, kind = settings.find_components()
        return FitCost(2 * kind.estimate_cost(kind.Settings(), log).bytes, EDGE_SECONDS * log.edges)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        super()._fit(interactions, options)
        (again, new), self.coefficients = self.components, PRIOR
        earlier, later = hold_out_window(interactions, again.parameters["window"])
        users = active_rows(earlier, later)
        if not len(users):
            return
        users, features, happened = users[:: -(-len(users) // MAX_USERS)], [], []
        before = new.clone(seed=self.seed, threads=self.threads).fit(earlier, options.for_component())
        for some in np.split(users, range(USERS_PER_BLOCK, len(users), USERS_PER_BLOCK)):
            histories, scores = earlier[some], before.scores(earlier[some], users=some)
            ranks = self._rank_as_new(scores, scores, histories)
            rows, items = np.nonzero((ranks < MAX_RANKS) & (histories.toarray() == 0))
            features.append(np.vstack([self._user_features(histories)[:, rows], np.log1p(ranks[rows, items])]))
            happened.append(later[some].toarray()[rows, items] > 0)
        found, _ = fit_logistic(np.hstack(features), np.concatenate(happened).astype(np.float64), PRIOR)
        self.coefficients = np.append(found[:-1], min(found[-1], MAX_SLOPE))

    def _user_features(self, histories: csr_matrix) -> np.ndarray:
        """Return x_u, float64 (3, users)."""
        again, items = self.components[0], np.diff(histories.indptr)
        shares = again.statistics.user_shares(histories, again.parameters["smoothing"])
        return np.stack([np.ones(len(items)), logit(shares), np.log1p(items)])

    def _rank_as_new(self, scores: np.ndarray, known: np.ndarray, histories: csr_matrix) -> np.ndarray:
        """Return the rank of each of the component's scores in the user's list of known items outside the history."""
        listed = np.where(self.item_degrees > 0, known, -np.inf)
        listed[histories.nonzero()] = -np.inf
        return np.stack([np.searchsorted(np.sort(-row), -own) for row, own in zip(listed, scores, strict=True)])

    def _score_as_new(self, scores: np.ndarray, known: np.ndarray, histories: csr_matrix) -> np.ndarray:
        """Return the probabilities of the ranks of these scores."""
        of_user = (self.coefficients[:-1, None] * self._user_features(histories)).sum(axis=0)
        ranks = self._rank_as_new(scores, known, histories)
        return expit(of_user[:, None] + self.coefficients[-1] * np.log1p(ranks)).astype(np.float32)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_component = self.components[1].scores(histories, users=users)
        scores = self._score_as_new(of_component, of_component, histories)
        scores[histories.nonzero()] = self.components[0].again_probabilities(histories)
        return scores

    def scores_of_new_items(self, histories: csr_matrix, new_items: NewItems, users: np.ndarray | None) -> np.ndarray:
        """Give a new item the probability of the rank that the component's score has in the list of other items."""
        histories = self.check_histories(histories, users)
        known = self.components[1].scores(histories, users=users)
        scores = new_items.predict(known)
        # An empty history of an unseen user is scored by popularity, and so are the new items.
        is_ranked = (np.diff(histories.indptr) > 0) | (users is not None)
        return np.where(is_ranked[:, None], self._score_as_new(scores, known, histories), scores)
