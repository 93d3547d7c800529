"""One-class collaborative filtering with random graphs (Paquet and Koenigstein 2014).

`model` is Algorithm 1; `inference` and `posterior` have its updates and factors, `kernels` and `edges` their loops;
`blocks` is a fit by blocks of users, and `messages` has their sums for the items.
"""

from oneclass.models.random_graph.model import RandomGraph

__all__ = ["RandomGraph"]
