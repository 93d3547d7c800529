"""What the blocked ALS of Spark's MLlib sends, counted on a graph and by a formula.

`org.apache.spark.ml.recommendation.ALS` cuts users and items into blocks by id modulo their number. In each half of a pass a
block sends one copy of each of its vectors to each block of the other side that has an edge of it (`OutBlock`; the class's
documentation); ratings stay where they are (`InBlock`). With implicit feedback the K x K products of each block are added
too, which is nothing beside that.
"""

import numpy as np
from scipy.sparse import csr_matrix


def counted(matrix: csr_matrix, blocks: int) -> int:
    """Vectors sent in a pass, both halves: (user, block of items) and (item, block of users) that share an edge."""
    users = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    items = matrix.indices.astype(np.int64)
    return sum(
        len(np.unique(own * blocks + other % blocks))
        for own, other in ((users, items), (items, users.astype(np.int64)))
    )


def reached(degree: float, blocks: int) -> float:
    """Blocks of the other side that a vertex has an edge to, where its edges fall into them evenly."""
    return blocks * (1 - (1 - 1 / blocks) ** degree)


def vectors(edges: float, users: float, items: float, blocks: int) -> float:
    """`counted` where every user has the mean degree, and every item; degrees that differ make it less."""
    return users * reached(edges / users, blocks) + items * reached(edges / items, blocks)
