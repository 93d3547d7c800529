"""Mult-DAE: a denoising autoencoder with a multinomial likelihood.

Liang, Krishnan, Hoffman and Jebara, "Variational Autoencoders for Collaborative Filtering", 2018: one tanh layer,
I - hidden - I, and the mean over users of

    -sum_i x_ui log softmax_i(f(x_u)) + weight_decay |W|^2

with x_u corrupted by dropout at the input only.
"""

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.autoencoders.autoencoder import Autoencoder, AutoencoderSettings
from oneclass.models.settings import Choice, NumericRange, SearchSpace

if TYPE_CHECKING:
    import torch

    from oneclass.models.autoencoders.training import Batch


class MultDAESettings(AutoencoderSettings):
    """The defaults are those of the authors' notebook for ML-20M."""

    search_space: ClassVar[SearchSpace] = {
        "hidden": Choice((200, 400, 600), manual_only=True),
        "batch_users": Choice((100, 200, 500)),
        "learning_rate": NumericRange(3e-4, 3e-3, log=True),
        "dropout": NumericRange(0.3, 0.8),
        "weight_decay": NumericRange(1e-6, 1e-3, log=True),
    }

    weight_decay: float = Field(
        2e-5,
        ge=0,
        lt=1,
        description="Penalty on the squares of the weights, without the biases, added to the mean loss of a user.",
    )


class MultDAE(Autoencoder[MultDAESettings]):
    """Denoising autoencoder with one hidden layer and a multinomial likelihood.

    Liang et al. (2018), the likelihood of eq. 2; needs PyTorch.

    Attributes:
        weights: `item_in` (items, hidden), `hidden_bias` (hidden,), `item_out` (hidden, items), `item_bias` (items,).

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import MultDAE
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> settings = MultDAE.Settings(hidden=8, epochs=100, batch_users=20, learning_rate=0.02)
        >>> model = MultDAE(settings).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mult_dae"
    Settings = MultDAESettings

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        items, hidden = shape[1], self.params.hidden
        return {
            "item_in": (items, hidden),
            "hidden_bias": (hidden,),
            "item_out": (hidden, items),
            "item_bias": (items,),
        }

    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        hidden = (batch.times(weights["item_in"]) + weights["hidden_bias"]).tanh()
        return -batch.log_likelihood(hidden @ weights["item_out"] + weights["item_bias"]).mean()

    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        return np.tanh(self._encode(histories) + self.weights["hidden_bias"])
