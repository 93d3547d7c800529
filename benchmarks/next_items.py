"""Find each user's last like by the likes before it, by models that read their order and by models that do not.

    python -m benchmarks.next_items --dataset ml-100k --source u.data
    python -m benchmarks.next_items --lines train.txt --items 6000 [--log log.csv]

The likes of a data set are those of `flows.backfill`; a line of LINES has a user and the user's items in their order,
of which the `--items` most frequent count. Settings are the defaults, but `mrf_dense` has a `recency_exponent` of 1.
Prints nDCG@20 among all other items, and its difference from `slist`'s over the same users. With `--log`, writes the
likes as a log of 400 days for `flows.backfill` instead. For a small run: `--dataset demo`.
"""

from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

import oneclass
from benchmarks.common import parse_options, print_head, print_row, run_popularity
from oneclass.models.settings import ModelSettings
from oneclass.tasks.stores import warehouse

# one row per like; of equal times a random one is the last
LIKES = "select user_id, item_id, epoch(last_at) as time from curated.interactions order by hash(user_id, item_id)"


class VSKNN(oneclass.OwnModel):
    """Vector multiplication session-based kNN (Ludewig and Jannach 2018); a history is a session.

    The neighbours are the users who share the latest items of the history; an item of theirs counts by the distance of
    the last shared item from the history's end, and by its rarity.
    """

    class Settings(ModelSettings):
        neighbours: int = 100
        reads_order = property(lambda self: True)

    def fit(self, matrix: csr_matrix) -> None:
        self.likes = csr_matrix((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), matrix.shape)
        self.rarity = np.log(matrix.shape[0] / np.maximum(1, np.bincount(matrix.indices, minlength=matrix.shape[1])))

    def scores(self, histories: csr_matrix) -> np.ndarray:
        found = np.zeros(histories.shape, dtype=np.float32)
        for row, (begin, end) in enumerate(zip(histories.indptr, histories.indptr[1:], strict=False)):
            places, count = np.argsort(np.argsort(-histories.recency_ranks[begin:end])), end - begin
            late, latest = (
                csr_matrix((weights, histories.indices[begin:end], [0, count]), shape=(1, histories.shape[1]))
                for weights in ((places + 1) / max(1, count), 1 / (count - places))
            )
            alike = (self.likes @ late.T).toarray().ravel()
            users = np.argpartition(-alike, self.params.neighbours)[: self.params.neighbours]
            shared = self.likes[users].multiply(latest).max(axis=1).toarray().ravel()
            found[row] = self.likes[users].T @ (alike[users] * shared) * self.rarity
        return found


def load_lines(path: Path, count: int) -> pl.DataFrame:
    """Read the users' items in their order, and keep the most frequent items."""
    words = [line.split() for line in path.read_text().splitlines()]
    likes = pl.DataFrame({"user_id": [of[0] for of in words], "item_id": [of[1:] for of in words]}).explode("item_id")
    likes = likes.drop_nulls().with_row_index("time")
    frequent = likes.group_by("item_id").len().sort("len", "item_id", descending=True).head(count)
    return likes.join(frequent, on="item_id", how="semi")


def write_log(likes: pl.DataFrame, path: str) -> None:
    """Write the likes of each user, in their order, at times of a random part of 400 days."""
    drawn = np.random.default_rng(0).exponential(size=(len(likes), 3))
    likes = likes.sort("user_id", "time").hstack(pl.from_numpy(drawn, ["gap", "before", "after"]))
    before, done, after = pl.first("before"), pl.col("gap").cum_sum() / pl.col("gap").sum(), pl.first("after")
    days = (400 * (before + done) / (before + 1 + after)).over("user_id")
    likes.select("user_id", "item_id", time=pl.from_epoch(1.6e9 + 86_400 * days)).sort("time").write_csv(path)


def main() -> None:
    options = parse_options(__doc__, dataset="", source=[], lines="", items=6000, log="")
    if options.lines:
        likes = load_lines(Path(options.lines), options.items)
    else:
        with run_popularity(options.dataset, options.source) as home, warehouse.open_warehouse(home) as connection:
            likes = connection.sql(LIKES).pl()
    if options.log:
        return write_log(likes, options.log)
    newer = pl.col("time").rank("ordinal", descending=True).over("user_id")
    split = oneclass.Split("last", likes.filter(newer > 1), likes.filter(newer == 1))
    models = [oneclass.SLIST(), oneclass.Transitions(), oneclass.MRFDense(recency_exponent=1), VSKNN(), oneclass.EASE()]
    found = oneclass.evaluate([*models, oneclass.Popularity()], split, metrics="ndcg@20")
    less = {row["other_model"]: row for row in found.comparisons.filter(model="slist").to_dicts()}
    print(f"{found.metrics['users'][0]:,} users\n")
    print_head(["model", "ndcg@20", "minus slist"])
    for row in found.metrics.to_dicts():
        apart = less.get(row["model"])
        cell = f"{-apart['difference']:+.4f} ± {apart['standard_error']:.4f}" if apart else ""
        print_row([row["model"], f"{row['value']:.4f} ± {row['standard_error']:.4f}", cell])


if __name__ == "__main__":
    main()
