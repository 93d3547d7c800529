"""A Gaussian posterior of factor vectors and biases, fully factorized."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass
class GaussianFactors:
    """q of every vertex of one side of the graph, users or items; float32.

    Attributes:
        mean, precision: (vertices, K), of the factors.
        bias_mean, bias_precision: (vertices,); a bias clamped at zero has mean 0 and precision infinity.
    """

    mean: np.ndarray
    precision: np.ndarray
    bias_mean: np.ndarray
    bias_precision: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What the kernels take."""
        return self.mean, self.precision, self.bias_mean, self.bias_precision

    def rows(self, at: np.ndarray) -> Self:
        """A copy of some vertices."""
        return type(self)(*(np.array(array[at]) for array in self.arrays))
