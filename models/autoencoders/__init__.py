"""CDAE, Mult-DAE and Mult-VAE, in PyTorch, which is imported only when one of them is fitted.

`autoencoder` is their base and saves long fits, `training` has the gradient steps, `draws` the random numbers.
"""

from oneclass.models.autoencoders.cdae import CDAE
from oneclass.models.autoencoders.mult_dae import MultDAE
from oneclass.models.autoencoders.mult_vae import MultVAE

__all__ = ["CDAE", "MultDAE", "MultVAE"]
