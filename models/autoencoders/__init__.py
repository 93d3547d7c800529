"""CDAE, Mult-DAE and Mult-VAE, in PyTorch, which is imported only when one of them is fitted.

`networks` has their layers and losses, `autoencoder` their base, `training` the gradient steps.
"""

from oneclass.models.autoencoders.networks import CDAE, MultDAE, MultVAE

__all__ = ["CDAE", "MultDAE", "MultVAE"]
