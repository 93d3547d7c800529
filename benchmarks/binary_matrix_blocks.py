"""binary_matrix by blocks of users, beside one machine and beside another seed: sizes of minibatches, bound, S and nDCG.

    python -m benchmarks.binary_matrix_blocks [--edges 300000] [--items 4000] [--blocks 4] [--seed 3]

The demo's graph with one edge of each user held out, default settings, so that the noise decides how large a minibatch is.
S is the mean rank score of 2,000 users, with its standard error in the last column. Nothing here depends on the load.
"""

import argparse

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.posted import head, row
from benchmarks.random_graph import demo_graph
from models.binary_matrix.model import BinaryMatrix
from models.binary_matrix.settings import BinaryMatrixSettings
from models.evaluation.held_out_edges import held_out_edges, parted
from models.evaluation.metrics import over_users, user_metrics
from models.evaluation.ranking import target_ranks
from models.fitting import Epoch, FitOptions

PASSES = (5, 20, 40, 60, 80)
JUDGED = 2000


def held_out(likes: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """One edge of every user apart."""
    ones = np.ones(likes.shape[0], dtype=np.int64)
    return parted(likes, held_out_edges(likes, ones, 1, *(np.arange(count) for count in likes.shape)))


def fitted(train: csr_matrix, targets: csr_matrix, name: str, blocks: int, seed: int) -> np.ndarray:
    """Fit, with a row of the table at some passes; the sizes of the minibatches after each pass."""
    model = BinaryMatrix(BinaryMatrixSettings(blocks=blocks), seed=seed)
    users = np.flatnonzero(np.diff(targets.indptr))[:JUDGED]

    def end(epoch: Epoch) -> None:
        if epoch.number in PASSES:
            ranks = target_ranks(model.scores(train[users], users=users), train[users], targets[users])
            found = over_users(user_metrics(ranks))
            rank, gain = found["mean_rank"], found["ndcg@100"]
            cells = f"{epoch.values['bound']:.1f}", f"{rank.value:.5f}", f"{gain.value:.5f}"
            row(name, epoch.number, int(epoch.values["minibatch"]), *cells, f"{rank.standard_error:.4f}")

    return model.fit(train, FitOptions(on_epoch=end)).minibatches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=300_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    train, targets = held_out(demo_graph(given.edges // 40, given.items, given.edges, 1))
    print(f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} edges")
    head("fit", "pass", "next minibatch", "bound", "S", "nDCG@100", "error of S")
    one = fitted(train, targets, "one machine", 1, given.seed)
    many = fitted(train, targets, f"{given.blocks} blocks", given.blocks, given.seed)
    fitted(train, targets, "one machine, another seed", 1, given.seed + 1)
    other = np.flatnonzero(one != many)
    print(f"\nsizes part after pass {other[0] + 1}" if len(other) else "\nall sizes are the same")


if __name__ == "__main__":
    main()
