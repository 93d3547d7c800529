"""CDAE, Mult-DAE and Mult-VAE: their layers and losses.

CDAE: Wu, DuBois, Zheng and Ester, "Collaborative Denoising Auto-Encoders for Top-N Recommender Systems", 2016: one
hidden layer with K units and an input node V_u for each user,

    h_u = sigmoid(W' x~_u + V_u + b),    y_u = W'_out h_u + b_out

and the logistic loss. Two things differ from the paper. In each step the paper samples a few of the items that a user
does not like; here all of them are in the loss, each with the weight `negative_weight`. And the input x~_u is x / |x|
with dropout, as in the autoencoders of Liang et al. The loss is the mean over users of

    sum_i x_ui softplus(-y_ui) + negative_weight (1 - x_ui) softplus(y_ui) + weight_decay (|W|^2 + |W_out|^2 + |V|^2)

A user who was not in training has no V_u; the mean over the training users is used instead.

Mult-DAE and Mult-VAE: Liang, Krishnan, Hoffman and Jebara, "Variational Autoencoders for Collaborative Filtering",
2018. Mult-DAE has one tanh layer, I - hidden - I, and the mean over users of

    -sum_i x_ui log softmax_i(f(x_u)) + weight_decay |W|^2

with x_u corrupted by dropout at the input only. In Mult-VAE the encoder I - hidden - latent gives a user's posterior
N(mu, diag sigma^2), the decoder latent - hidden - I the logits; the hidden layers have tanh. The loss is the mean over
users of the negative of eq. 5, with a weight on the KL term (eq. 7),

    -sum_i x_ui log softmax_i(f(z_u)) + beta KL(N(mu, sigma^2) || N(0, 1)),    z_u ~ N(mu, sigma^2)

with one draw of z_u in each step. beta rises in proportion to the gradient steps, up to a cap. Scores use z_u = mu.
"""

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.autoencoders.autoencoder import DECAY, Autoencoder, AutoencoderSettings
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.settings import Choice, NumericRange, SearchSpace

if TYPE_CHECKING:
    import torch

    from oneclass.models.autoencoders.training import Batch


class CDAESettings(AutoencoderSettings):
    """Defaults chosen on ml-1m's validation users; K and the dropout are those of the other autoencoders."""

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
    weight_decay: float = Field(1e-5, ge=0, lt=1, description=DECAY)
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
        >>> model = CDAE(hidden=8, epochs=100, batch_users=20, learning_rate=0.02, seed=1).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "cdae"
    Settings = CDAESettings

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        hidden = self.params.hidden
        return super()._shapes(shape) | {"user_node": (shape[0], hidden), "hidden_bias": (hidden,)}

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


class MultDAESettings(AutoencoderSettings):
    """The defaults are those of the authors' notebook for ML-20M."""

    search_space: ClassVar[SearchSpace] = {
        "hidden": Choice((200, 400, 600), manual_only=True),
        "batch_users": Choice((100, 200, 500)),
        "learning_rate": NumericRange(3e-4, 3e-3, log=True),
        "dropout": NumericRange(0.3, 0.8),
        "weight_decay": NumericRange(1e-6, 1e-3, log=True),
    }

    weight_decay: float = Field(2e-5, ge=0, lt=1, description=DECAY)


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
        >>> model = MultDAE(hidden=8, epochs=100, batch_users=20, learning_rate=0.02, seed=1).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mult_dae"
    Settings = MultDAESettings

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        return super()._shapes(shape) | {"hidden_bias": (self.params.hidden,)}

    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        hidden = (batch.times(weights["item_in"]) + weights["hidden_bias"]).tanh()
        return -batch.log_likelihood(hidden @ weights["item_out"] + weights["item_bias"]).mean()

    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        return np.tanh(self._encode(histories) + self.weights["hidden_bias"])


class MultVAESettings(AutoencoderSettings):
    """The defaults are those of the authors' notebook for ML-20M."""

    weight_decay: ClassVar[float] = 0.0
    search_space: ClassVar[SearchSpace] = {
        "hidden": Choice((200, 400, 600), manual_only=True),
        "latent": Choice((50, 100, 200)),
        "batch_users": Choice((100, 200, 500)),
        "learning_rate": NumericRange(3e-4, 3e-3, log=True),
        "dropout": NumericRange(0.3, 0.8),
        "beta_cap": NumericRange(0.05, 1.0),
        "anneal_steps": NumericRange(500, 50000, log=True),
    }

    hidden: int = Field(600, ge=1, le=8192, description="Units of the hidden layers of encoder and decoder.")
    latent: int = Field(200, ge=1, le=4096, description="Length of a user's latent vector.")
    beta_cap: float = Field(0.2, ge=0, le=10, description="Weight of the KL term once it is annealed.")
    anneal_steps: int = Field(
        200000,
        ge=0,
        description="Gradient steps in which the weight of the KL term would rise from 0 to 1; it stops at beta_cap. "
        "With 0 it is beta_cap from the start.",
    )


class MultVAE(Autoencoder[MultVAESettings]):
    """Variational autoencoder with a multinomial likelihood: a tanh layer, a Gaussian latent vector, a tanh layer.

    Liang et al. (2018), eq. 5 and 7; needs PyTorch.

    Attributes:
        weights: `item_in` (items, hidden), `encoder_bias` (hidden,); `to_latent` (hidden, 2 latent), `latent_bias`
            (2 latent,), means before log variances; `from_latent` (latent, hidden), `decoder_bias` (hidden,);
            `item_out` (hidden, items), `item_bias` (items,).

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import MultVAE
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> settings = {"latent": 4, "hidden": 8, "epochs": 100, "batch_users": 20, "learning_rate": 0.02}
        >>> model = MultVAE(**settings, seed=1).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mult_vae"
    Settings = MultVAESettings

    def beta(self, update: int) -> float:
        """Return the weight of the KL term in the gradient step after `update` earlier ones."""
        steps, cap = self.params.anneal_steps, self.params.beta_cap
        return min(cap, update / steps) if steps else cap

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        hidden, latent = self.params.hidden, self.params.latent
        encoder = {"encoder_bias": (hidden,), "to_latent": (hidden, 2 * latent), "latent_bias": (2 * latent,)}
        return super()._shapes(shape) | encoder | {"from_latent": (latent, hidden), "decoder_bias": (hidden,)}

    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        encoded = (batch.times(weights["item_in"]) + weights["encoder_bias"]).tanh()
        mean, log_variance = (encoded @ weights["to_latent"] + weights["latent_bias"]).chunk(2, dim=1)
        latent = mean + batch.noise * (log_variance / 2).exp()
        decoded = (latent @ weights["from_latent"] + weights["decoder_bias"]).tanh()
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
        likelihood = batch.log_likelihood(decoded @ weights["item_out"] + weights["item_bias"])
        return (self.beta(batch.update) * divergence - likelihood).mean()

    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        encoded, latent = np.tanh(self._encode(histories) + self.weights["encoder_bias"]), self.params.latent
        to_mean = np.ascontiguousarray(self.weights["to_latent"][:, :latent])
        mean = dense_times(encoded, to_mean) + self.weights["latent_bias"][:latent]
        return np.tanh(dense_times(mean, self.weights["from_latent"]) + self.weights["decoder_bias"])
