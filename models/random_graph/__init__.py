"""One-class collaborative filtering with random graphs (Paquet and Koenigstein 2014).

`model` is Algorithm 1, `inference` q and its updates with their loops; `fold_in` is for users who were not in
training, `explicit_negatives` for logs with them, and `blocks` fits by blocks of users.
"""

from oneclass.models.random_graph.model import RandomGraph

__all__ = ["RandomGraph"]
