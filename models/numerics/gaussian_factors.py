"""A Gaussian posterior of factor vectors and biases, fully factorized."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass
class GaussianFactors:
    """q of all vertices of one side of the graph, the users or the items. Arrays are float32.

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
        """The four arrays, in the order in which the kernels take them."""
        return self.mean, self.precision, self.bias_mean, self.bias_precision

    def rows(self, at: np.ndarray | slice) -> Self:
        """A copy of some vertices."""
        return type(self)(*(np.array(array[at]) for array in self.arrays))
