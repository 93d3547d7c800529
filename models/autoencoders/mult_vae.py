"""Mult-VAE: a variational autoencoder with a multinomial likelihood.

Liang, Krishnan, Hoffman and Jebara, "Variational Autoencoders for Collaborative Filtering", 2018. The encoder
I - hidden - latent gives a user's posterior N(mu, diag sigma^2), the decoder latent - hidden - I gives the logits; the
hidden layers have tanh. The loss is the mean over users of the negative of eq. 5, with a weight on the KL term (eq. 7),

    -sum_i x_ui log softmax_i(f(z_u)) + beta KL(N(mu, sigma^2) || N(0, 1)),    z_u ~ N(mu, sigma^2)

with one draw of z_u in each step. beta rises in proportion to the gradient steps, up to a cap. Scores use z_u = mu.
"""

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.autoencoders.autoencoder import Autoencoder, AutoencoderSettings
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.settings import Choice, NumericRange, SearchSpace

if TYPE_CHECKING:
    import torch

    from oneclass.models.autoencoders.training import Batch


class MultVAESettings(AutoencoderSettings):
    """The defaults are those of the authors' notebook for ML-20M."""

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
        >>> settings = MultVAE.Settings(latent=4, hidden=8, epochs=100, batch_users=20, learning_rate=0.02)
        >>> model = MultVAE(settings).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "mult_vae"
    Settings = MultVAESettings

    @property
    def noise_width(self) -> int:
        return self.params.latent

    def beta(self, update: int) -> float:
        """Return the weight of the KL term in the gradient step after `update` earlier ones."""
        steps, cap = self.params.anneal_steps, self.params.beta_cap
        return min(cap, update / steps) if steps else cap

    def fold_in(self, histories: csr_matrix) -> np.ndarray:
        """Return the posterior means of the latent vectors, float32 (block, latent)."""
        with kernel_threads(self.threads):
            return self._mean(self.check_histories(histories))

    def _shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        items, hidden, latent = shape[1], self.params.hidden, self.params.latent
        return {
            "item_in": (items, hidden),
            "encoder_bias": (hidden,),
            "to_latent": (hidden, 2 * latent),
            "latent_bias": (2 * latent,),
            "from_latent": (latent, hidden),
            "decoder_bias": (hidden,),
            "item_out": (hidden, items),
            "item_bias": (items,),
        }

    def _loss(self, weights: "dict[str, torch.Tensor]", batch: "Batch") -> "torch.Tensor":
        encoded = (batch.times(weights["item_in"]) + weights["encoder_bias"]).tanh()
        mean, log_variance = (encoded @ weights["to_latent"] + weights["latent_bias"]).chunk(2, dim=1)
        latent = mean + batch.noise * (log_variance / 2).exp()
        decoded = (latent @ weights["from_latent"] + weights["decoder_bias"]).tanh()
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
        likelihood = batch.log_likelihood(decoded @ weights["item_out"] + weights["item_bias"])
        return (self.beta(batch.update) * divergence - likelihood).mean()

    def _mean(self, histories: csr_matrix) -> np.ndarray:
        encoded = np.tanh(self._encode(histories) + self.weights["encoder_bias"])
        latent = self.params.latent
        return dense_times(encoded, self.weights["to_latent"][:, :latent]) + self.weights["latent_bias"][:latent]

    def _hidden(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        decoded = dense_times(self._mean(histories), self.weights["from_latent"])
        return np.tanh(decoded + self.weights["decoder_bias"])
