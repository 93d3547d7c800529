"""CDAE, Mult-DAE and Mult-VAE, in PyTorch, which is imported when one of them is fitted.

`autoencoder` has what they share, `training` the networks, `draws` their random numbers, `checkpoints` where a fit goes on.
"""

from models.autoencoders.cdae import CDAE
from models.autoencoders.mult_dae import MultDAE
from models.autoencoders.mult_vae import MultVAE

__all__ = ["CDAE", "MultDAE", "MultVAE"]
