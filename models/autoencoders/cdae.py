"""CDAE: a denoising autoencoder with an input node for each user.

Wu, DuBois, Zheng and Ester, "Collaborative Denoising Auto-Encoders for Top-N Recommender Systems", 2016: one hidden
layer with K units,

    h_u = sigmoid(W' x~_u + V_u + b),    y_u = W'_out h_u + b_out

and the logistic loss. Two things differ from the paper. In each step the paper samples a few of the items that a user
does not like; here all of them are in the loss, each with the weight `negative_weight`. And the input x~_u is x / |x|
with dropout, as in the autoencoders of Liang et al. 2018. The loss is the mean over users of

    sum_i x_ui softplus(-y_ui) + negative_weight (1 - x_ui) softplus(y_ui) + weight_decay (|W|^2 + |W_out|^2 + |V|^2)

A user who was not in training has no V_u; the mean over the training users is used instead.
"""

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.autoencoders.autoencoder import Autoencoder, AutoencoderSettings
from oneclass.models.settings import Choice, NumericRange, SearchSpace

if TYPE_CHECKING:
    import torch

    from oneclass.models.autoencoders.training import Batch


class CDAESettings(AutoencoderSettings):
    """The defaults were chosen on the validation users of ml-1m; K and the dropout are those of the other
    autoencoders.
    """

    search_space: ClassVar[SearchSpace] = {
        "hidden": Choice((50, 100, 200, 400), manual_only=True),
        "batch_users": Choice((100, 200, 500)),
        "learning_rate": NumericRange(3e-4, 1e-2, log=True),
        "dropout": NumericRange(0.2, 0.8),
        "weight_decay": NumericRange(1e-6, 1e-2, log=True),
        "negative_weight": NumericRange(0.03, 1.0, log=True),
    }

    batch_users: int = Field(100, ge=1, description="Number of users in a gradient step.")
    learning_rate: float = Field(4e-3, gt=0, le=1, description="Step size of Adam.")
    weight_decay: float = Field(
        1e-5,
        ge=0,
        lt=1,
        description="Penalty on the squares of the weights, with the user nodes but without the biases, added to the "
        "mean loss of a user.",
    )
    hidden: int = Field(200, ge=1, le=8192, description="Units K of the hidden layer.")
    negative_weight: float = Field(
        0.3, gt=0, le=1, description="Weight of an item that the user does not like; a liked item has the weight 1."
    )


class CDAE(Autoencoder[CDAESettings]):
    """Collaborative denoising autoencoder: one hidden layer, to whose input a vector of each user is added.

    Wu et al. (2016), with the loss of the module's docstring; needs PyTorch.

    Attributes:
        weights: `item_in` (items, hidden), `user_node` (users, hidden), `hidden_bias` (hidden,), `item_out` (hidden,
            items), `item_bias` (items,); `unseen_node` (hidden,), the mean of the user nodes that were trained.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import CDAE
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = CDAE(hidden=8, epochs=100, batch_users=20, learning_rate=0.02).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "cdae"
    Settings = CDAESettings

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        users, items, hidden = *shape, self.params.hidden
        return {
            "item_in": (items, hidden),
            "user_node": (users, hidden),
            "hidden_bias": (hidden,),
            "item_out": (hidden, items),
            "item_bias": (items,),
        }

    def _initial(self, interactions: csr_matrix, users: np.ndarray) -> dict[str, np.ndarray]:
        """Return the initial weights of an autoencoder, with user nodes of zero."""
        arrays = super()._initial(interactions, users)
        arrays["user_node"][:] = 0
        return arrays

    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        own = weights["user_node"][batch.users] + weights["hidden_bias"]
        logits = (batch.times(weights["item_in"]) + own).sigmoid() @ weights["item_out"] + weights["item_bias"]
        return batch.logistic_loss(logits, self.params.negative_weight).mean()

    def _complete(self, weights: dict[str, np.ndarray], users: np.ndarray) -> dict[str, np.ndarray]:
        """Give users outside `users` the mean of the trained user nodes."""
        mean = weights["user_node"][users].mean(axis=0)
        nodes = np.tile(mean, (len(weights["user_node"]), 1))
        nodes[users] = weights["user_node"][users]
        return {**weights, "user_node": nodes, "unseen_node": mean}

    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        node = self.weights["unseen_node"] if users is None else self.weights["user_node"][users]
        return expit(self._encode(histories) + node + self.weights["hidden_bias"])
