"""One-class collaborative filtering with random graphs (Paquet and Koenigstein 2014).

`model` is Algorithm 1; `inference` and `posterior` have its updates and factors, `kernels` and `edges` their loops;
`blocks` is a fit by blocks of users, `worker` has the calls for one block, and `messages` their sums for the items.
"""

from oneclass.models.random_graph.model import RandomGraph

__all__ = ["RandomGraph"]
