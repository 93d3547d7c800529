"""The base of models with a like probability (`models.negatives.like_probability`): their `like` and their scores."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.settings import SettingsT

if TYPE_CHECKING:
    from oneclass.models.numerics.logistic_bound import GaussianFactors


class LikeModel(Model[SettingsT]):
    """A model with a Gaussian logit for each pair: `like` and three scores are functions of its moments.

    With x = mu_a / sqrt(1 + pi sigma_a^2 / 8): `like` is sigma(x), `popularity_x_like` sigma(x) pi, and
    `popularity_x_odds` x + a log pi, where a is the setting `popularity_weight`.
    """

    score_names = ("like", "popularity_x_like", "popularity_x_odds")

    @abstractmethod
    def _user_side(self, histories: csr_matrix, users: np.ndarray | None) -> "GaussianFactors":
        """Return q of users, learned or folded in."""

    @abstractmethod
    def _item_side(self) -> "GaussianFactors":
        """Return q of the items."""

    @abstractmethod
    def _popularity(self) -> np.ndarray:
        """Return pi, float64 (items,)."""

    def _like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        from oneclass.models.negatives.like_probability import pair_likes

        return pair_likes(self._user_side(histories, users), self._item_side(), items)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return next(self._scores_of((score,), histories, users))

    def _iterate_scores(self, histories: csr_matrix, users: np.ndarray | None) -> Iterator[np.ndarray]:
        return self._scores_of(self.score_names, histories, users)

    def _scores_of(
        self, names: tuple[str, ...], histories: csr_matrix, users: np.ndarray | None
    ) -> Iterator[np.ndarray]:
        from oneclass.models.negatives.like_probability import compute_scores, item_columns, log_odds, logit_moments

        columns = self.compute_once("columns", lambda: item_columns(self._item_side()))
        logits = log_odds(*logit_moments(self._user_side(histories, users), columns))
        popularity, weighted = self.compute_once("popularity", self._popularity_and_log)
        return compute_scores(logits, names, popularity, weighted)

    def _popularity_and_log(self) -> tuple[np.ndarray, np.ndarray]:
        """Return pi and a log pi, float32 (items,); an item without an edge gets the log of half the smallest pi."""
        params: Any = self.params
        shares = self._popularity()
        logs = params.popularity_weight * np.log(np.where(shares > 0, shares, shares[shares > 0].min() / 2))
        return shares.astype(np.float32), logs.astype(np.float32)
