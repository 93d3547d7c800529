"""The binary matrix by blocks of users: a minibatch is one exchange.

All blocks draw the minibatch, and each keeps the entries of its rows. So these are the entries of one machine, and the fit
is that of one machine but for the rounding of the items' sums, which each block adds in float32 - as long as minibatches
are as large. Their size is a measured number cut to an integer (box 8); where rounding moves it past one, a minibatch has an
entry more or less, and the fits go apart as two with different draws would.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from models.binary_matrix import worker
from models.binary_matrix.inference import BinaryMatrixPosterior, Inference, float32_pair
from models.binary_matrix.messages import move_items
from models.binary_matrix.minibatch import Moving
from models.binary_matrix.sampling import margins
from models.binary_matrix.tables import divergence
from models.binary_matrix.worker import Items, Terms
from models.fitting import FitOptions
from models.user_blocks import Away, Blocks, added, cut_into_blocks


@contextmanager
def begun(
    terms: Terms, q: BinaryMatrixPosterior, interactions: csr_matrix, options: FitOptions
) -> Iterator["BlocksInference"]:
    """A fit by blocks at its beginning, which is `q`; its folder in `options.scratch` goes when it ends, however it ends.

    Meanwhile the users of `q` are away.
    """
    with cut_into_blocks(interactions, terms.settings.blocks, terms, options, "binary_matrix") as blocks:
        blocks.begin({"users": q.users, "updates": q.user_updates})
        q.users, q.user_updates = Away(blocks, "users"), Away(blocks, "updates")
        yield BlocksInference(blocks, q)
        q.users, q.user_updates = blocks.gathered().values()


class BlocksInference(Inference):
    """The minibatches of a fit by blocks.

    Attributes:
        blocks: where the users of `q` lie.
    """

    def __init__(self, blocks: Blocks, q: BinaryMatrixPosterior) -> None:
        terms: Terms = blocks[0].terms
        super().__init__(q, terms.settings, terms.seed)
        counts = blocks.ask(worker.weigh, len(q.items))
        column_ones = np.sum(counts, axis=0)
        blocks.share({"column_ones": column_ones, "first_ones": np.cumsum([0, *(count.sum() for count in counts)])})
        self.blocks = blocks
        whole = terms.users, int(column_ones.sum()), terms.users * len(column_ones) - int(column_ones.sum())
        self.column_p = margins(terms.settings.sampling, np.zeros(0), column_ones, whole)["column_p"]

    def _move(self, size: int) -> np.ndarray:
        q, settings = self.q, self.settings
        items = Items(q.items, float32_pair(q.z))
        answers = self.blocks.ask(worker.move, int(q.progress[0]), size, items, writes=True)
        side = Moving(q.items, q.items, 1 / settings.item_variance, self.column_p, q.item_updates)
        total = added(message for message, _ in answers)
        noise = move_items(side, total, settings.factors, (settings.t0, settings.power))
        return sum(totals for _, totals in answers) + noise.sum(axis=0)

    def _divergence(self) -> float:
        q, settings = self.q, self.settings
        of_users = sum(self.blocks.ask(worker.divergence_of_users))
        return of_users + divergence(q.items, settings.item_variance) + divergence(q.z, settings.z_variance)
