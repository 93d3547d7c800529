"""The base of the autoencoders: settings, the loop over epochs with early stopping, scores.

An autoencoder maps a user's history x (binary, over all items) to logits over all items, and learns to reconstruct all
of x from a part of it. Inputs are x / |x| with dropout, as in Liang, Krishnan, Hoffman and Jebara, "Variational
Autoencoders for Collaborative Filtering", 2018. The histories of a batch are sparse, its logits are dense.

A fit that begins at an earlier one has its weights, those of new items and users excepted, and goes on from the number
of its best epoch, on which the draws and any annealing depend. Adam's moments begin anew. It makes a quarter of the
epochs at most, and ends after a quarter of the patience.
"""

from abc import abstractmethod
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from typing_extensions import TypeVar

from oneclass.models.base import Model
from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import Epoch, FitOptions, Start, ValidationUsers, copy_rows, skipped_epochs
from oneclass.models.numerics.matmul import dense_times, pattern_times
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.settings import ModelSettings

if TYPE_CHECKING:
    import torch

    from oneclass.models.autoencoders.training import Batch

DECAY = "Penalty on the squares of the weights, without the biases, added to the mean loss of a user."
HELD_OUT_SHARE, MAX_HELD_OUT_USERS = 0.05, 1000  # training users held out for early stopping, if no others are given
PATIENCE = 30  # training ends after so many epochs without a better nDCG@100 on the validation users
VALIDATION_BATCH_USERS = 500  # users scored at a time
ROW_PARAMETERS = "item_in", "item_bias", "user_node"  # weights with a row for each item, or for each user


class AutoencoderSettings(ModelSettings):
    """Settings of the training of every autoencoder; the defaults are those of Liang et al. for ML-20M."""

    epochs: int = Field(200, ge=1, description="Largest number of passes over the users.")
    batch_users: int = Field(500, ge=1, description="Number of users in a gradient step.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Step size of Adam.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Share of the items of a history that are hidden in an epoch.")
    hidden: int = Field(200, ge=1, le=8192, description="Units of the hidden layer next to the items.")


AutoencoderT = TypeVar("AutoencoderT", bound=AutoencoderSettings, default=Any)


class Autoencoder(Model[AutoencoderT]):
    """Base of the autoencoders: fit and scores; a model adds its layers and its loss.

    If a fit is given no validation users, a twentieth of the training users (at most 1,000, chosen by the seed) are
    held out of the gradient steps and used for validation instead. If that is less than one user, all epochs run and
    the last one is kept.

    Attributes:
        weights: float32 arrays by name, from the best epoch.
        best_epoch: the number of that epoch; a warm start continues the count of the earlier fit.
    """

    is_iterative = True
    extra = "neural"
    Settings: ClassVar[type[ModelSettings]] = AutoencoderSettings

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        training, chosen, start = _import_training(self.name), self.params, options.start
        users, histories, targets = self._validation_users(interactions, options.validation)
        initial, before = self._initial(interactions, users), 0
        if start:
            self._take(initial, start)
            before = start.previous.best_epoch
        last = before + chosen.epochs - skipped_epochs(chosen.epochs, start)
        patience = PATIENCE - skipped_epochs(PATIENCE, start)
        with training.single_torch_thread():
            earlier = before * -(-len(users) // chosen.batch_users)
            steps = training.Training(initial, self._loss, chosen, self.seed, earlier)
            best, value = dict[str, np.ndarray](), -np.inf
            self.best_epoch = before
            for number in range(before + 1, last + 1):
                if number - self.best_epoch > patience:
                    break
                started = perf_counter()
                seen = {"loss": steps.epoch(interactions, users, number)}
                self.weights = self._complete(steps.weights(), users)
                if targets.nnz:
                    seen["validation ndcg@100"] = self._ndcg(histories, targets)
                reached = seen.get("validation ndcg@100", np.inf)  # without such users, the last epoch is the best
                if reached > value or not targets.nnz:
                    self.best_epoch, value = number, reached
                    best = {name: array.copy() for name, array in self.weights.items()}
                options.on_epoch(Epoch(number, last, perf_counter() - started, seen))
        self.weights = best

    def _validation_users(
        self, interactions: csr_matrix, validation: ValidationUsers | None
    ) -> tuple[np.ndarray, csr_matrix, csr_matrix]:
        """Return the rows to train on, and the histories and targets of the validation users."""
        users = np.flatnonzero(np.diff(interactions.indptr))
        if validation is None:
            able = np.flatnonzero(np.diff(interactions.indptr) > 1)
            count = min(MAX_HELD_OUT_USERS, int(HELD_OUT_SHARE * len(able)))
            out = np.sort(np.random.default_rng(self.seed).permutation(able)[:count])
            rows = interactions[out]
            counts = np.maximum(1, np.diff(rows.indptr) // 5)
            chosen = choose_held_out_edges(rows, counts, self.seed, out, np.arange(rows.shape[1]))
            return np.setdiff1d(users, out), *split_matrix(rows, chosen)
        has_target = np.diff(validation.targets.indptr) > 0
        return users, validation.histories[has_target], validation.targets[has_target]

    def _initial(self, interactions: csr_matrix, users: np.ndarray) -> dict[str, np.ndarray]:
        """Draw normal weights of variance 2 / (inputs + outputs); zeros for biases, and for items without users."""
        arrays = {}
        for name, shape in self._shapes(interactions.shape).items():
            arrays[name] = np.zeros(shape, dtype=np.float32)
            if len(shape) == 2:
                draws = normals(self.seed, purpose(f"{self.name} {name}"), *shape)
                arrays[name] = draws * np.float32(np.sqrt(2 / sum(shape)))
        present = np.bincount(interactions[users].indices, minlength=interactions.shape[1]) > 0
        arrays["item_in"][~present] = 0
        return arrays

    def _take(self, initial: dict[str, np.ndarray], start: Start) -> None:
        """Replace the initial weights by those of an earlier fit, except for new items and users."""
        indices = {name: start.users if name == "user_node" else start.items for name in ROW_PARAMETERS}
        for name, own in initial.items():
            earlier = start.previous.weights[name]
            if name in indices:
                copy_rows(own, earlier, indices[name])
            elif name == "item_out":  # its items are columns
                copy_rows(own.T, earlier.T, start.items)
            else:
                own[...] = earlier

    def _ndcg(self, histories: csr_matrix, targets: csr_matrix) -> float:
        """Return the mean nDCG@100 of the validation users with the current weights."""
        values = []
        for start in range(0, histories.shape[0], VALIDATION_BATCH_USERS):
            block = slice(start, start + VALIDATION_BATCH_USERS)
            scores = self.scores(histories[block])
            values.append(
                metrics.compute_user_metrics(rank_targets(scores, histories[block], targets[block]))["ndcg@100"]
            )
        return float(np.concatenate(values).mean())

    def _encode(self, histories: csr_matrix) -> np.ndarray:
        """Return x / |x| times the input weights, float32 (block, hidden)."""
        lengths = np.sqrt(np.maximum(np.diff(histories.indptr), 1)).astype(np.float32)
        return pattern_times(histories, self.weights["item_in"]) / lengths[:, None]

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return dense_times(self._hidden(histories, users), self.weights["item_out"]) + self.weights["item_bias"]

    def _complete(self, weights: dict[str, np.ndarray], users: np.ndarray) -> dict[str, np.ndarray]:
        """Return the weights learned from the rows `users`, with all other arrays that scoring needs."""
        return weights

    def _arrays(self) -> dict[str, np.ndarray]:
        return {**self.weights, "best_epoch": np.array(self.best_epoch)}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.best_epoch = int(arrays.pop("best_epoch"))
        self.weights = arrays

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights by name, for (users, items): those of every model, to which it adds."""
        items, hidden = shape[1], self.params.hidden
        return {"item_in": (items, hidden), "item_out": (hidden, items), "item_bias": (items,)}

    @abstractmethod
    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        """Return the loss to minimize, a mean over the users of a batch."""

    @abstractmethod
    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        """Return the last layer before the items, float32 (block, hidden)."""


def _import_training(name: str):
    """Import the module of the gradient steps.

    Raises:
        ValueError: PyTorch is not installed.
    """
    try:
        from oneclass.models.autoencoders import training
    except ModuleNotFoundError as error:
        raise ValueError(f"{name} needs PyTorch, which the extra neural brings: pip install '.[neural]'") from error
    return training
