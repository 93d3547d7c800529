"""What three more general closed forms would bring to mrf_dense: nDCG@100 of unseen users, paired with its own.

    python -m benchmarks.penalties --dataset ml-1m --source ratings.csv

Each begins at the data set's own settings of mrf_dense, else at its defaults, in float64, and has a number more:

    emphasis    DEQL (ICLR 2026), which is EDLAE with b > 0. Its column i is that of b = 0 times
                1 / (1 + c (1 - R2_i)), c = (1 - p) b^2 / (p a^2), R2_i being the share of item i's squares that the others explain:
                with H = q^2 G + q p diag G and q = 1 - p the objective's gradient off the diagonal is that of EDLAE with
                q (p a^2 + q b^2 (1 - B_ii)) G_i on the right, and on it 1 - B_ii = q G_i'B_i / G_ii; tried
                with less of `popularity_discount` too, which also scales columns
    floor       the penalty of item i is l2 n_i^alpha + c, the present one being l2 n_i^alpha; c a multiple of the
                edges' mean penalty, tried with smaller l2
    input       an item of a history weighs n_i^-p

Every number is tried on validation users, the best of each form is judged once on test users. n_i is an item's spread.
"""

import argparse
import tempfile
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csr_matrix, diags

from benchmarks.bayesian_models import prepared
from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from models.evaluation.metrics import compare, mean
from models.mrf.dense import MRFDense, MRFDenseSettings
from models.numerics.rescaled_columns import columns, rescaling
from tasks.evaluate.ranks import rank
from tasks.stores.matrices import Part

FORMS = {
    "emphasis": [{"emphasis": c, "of_discount": of} for c in (0.25, 0.5, 1.0, 2.0) for of in (1.0, 0.5, 0.0)],
    "floor": [{"floor": c, "of_l2": of} for c in (0.1, 0.3, 1.0) for of in (1.0, 0.7, 0.4)],
    "input": [{"input_exponent": p} for p in (-0.2, -0.1, 0.1, 0.2)],
}
METRIC = "ndcg@100"


@dataclass(frozen=True)
class Form:
    """The numbers that mrf_dense lacks; as they are by default it is mrf_dense.

    Attributes:
        of_l2, of_discount: the ridge and `popularity_discount`, as multiples of the settings' own.
    """

    emphasis: float = 0.0
    floor: float = 0.0
    of_l2: float = 1.0
    of_discount: float = 1.0
    input_exponent: float = 0.0


def gram(train: csr_matrix, settings: MRFDenseSettings) -> np.ndarray:
    """X'WX, float64 (items, items), about the means where the settings say so."""
    moments = columns(train, settings.user_weight_exponent)
    ones = csr_matrix((np.ones(train.nnz), train.indices, train.indptr), shape=train.shape)
    found = (ones.T @ diags(moments.weights * moments.unit) @ ones).toarray()
    if settings.centred:
        found -= moments.users * np.outer(moments.mean, moments.mean)
    return found


def fitted(
    own: MRFDense, train: csr_matrix, products: np.ndarray, form: Form, inverses: dict[bytes, np.ndarray]
) -> MRFDense:
    """A fit of mrf_dense with the weights of the form in place of its own; `products` are `gram`'s.

    Args:
        inverses: those that were made, by the penalties: forms share them.
    """
    settings = own.settings
    moments = columns(train, settings.user_weight_exponent)
    discount = form.of_discount * settings.popularity_discount
    scaled = rescaling(moments, settings.alpha, settings.centred, discount)
    taken = moments.spread > 0
    ridge = form.of_l2 * settings.resolve(train).l2
    spread = np.where(taken, moments.spread, 1.0)
    of_edges = float(np.sum(spread ** (1 + settings.alpha)) / np.sum(spread))
    penalty = ridge * (spread**settings.alpha + form.floor * of_edges)
    if penalty.tobytes() not in inverses:
        inverses.clear()  # forms of one penalty follow each other
        inverses[penalty.tobytes()] = np.linalg.inv(np.where(np.outer(taken, taken), products, 0) + np.diag(penalty))
    inverse = inverses[penalty.tobytes()]
    squares = np.where(taken, products.diagonal(), 1.0)
    unexplained = np.clip((1 / inverse.diagonal() - penalty) / squares, 0, None)
    weights = -inverse / inverse.diagonal()
    weights *= (scaled.back / scaled.scale) / (1 + form.emphasis * unexplained)
    weights *= spread[:, None] ** -form.input_exponent
    np.fill_diagonal(weights, 0)
    weights[~taken] = 0
    weights[:, ~taken] = 0
    model = copy(own)
    model.weights = weights.astype(np.float32)
    if settings.intercept:
        model.offset = (moments.mean * scaled.back / scaled.scale - moments.mean @ weights).astype(np.float32)
    return model


def of_users(model: MRFDense, part: Part) -> np.ndarray:
    return rank(model, "score", part).of_users[METRIC]


def rows(run: RunSettings) -> Iterator[str]:
    """Lines of the table, as they are found."""
    split = prepared(run)["strong_generalization"]
    settings, train, parts = run.models["mrf_dense"], split.train, split.parts
    own, products = MRFDense(settings, threads=1).fit(train[:]), gram(train, settings)
    made = partial(fitted, own, train, products, inverses={})
    at = {name: of_users(own, part) for name, part in parts.items()}
    apart = np.abs(of_users(made(Form()), parts["validation"]) - at["validation"]).mean()
    yield f"mrf_dense itself: {mean(at['validation']).value:.4f} on validation, {mean(at['test']).value:.4f} on test;"
    yield f"its weights in float64 move {METRIC} of a user by {apart:.1e} on average"
    yield "\n| form | numbers | part | nDCG@100 | to mrf_dense |\n|---|---|---|---|---|"
    for name, tried in FORMS.items():
        found = {}
        for numbers in tried:
            values = of_users(made(Form(**numbers)), parts["validation"])
            found[tuple(numbers.items())] = values.mean()
            yield row(name, numbers, "validation", values, at["validation"])
        numbers = dict(max(found, key=found.get))
        values = of_users(made(Form(**numbers)), parts["test"])
        yield row(name, numbers, "test", values, at["test"])


def row(name: str, numbers: dict[str, float], part: str, values: np.ndarray, own: np.ndarray) -> str:
    paired, words = compare(values, own), ", ".join(f"{key} {number:g}" for key, number in numbers.items())
    found = mean(values)
    return (
        f"| {name} | {words} | {part} | {found.value:.4f} ± {found.standard_error:.4f} | "
        f"{paired.difference:+.4f} ± {paired.standard_error:.4f} |"
    )


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--source", action="append", default=[], help="a log; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = resolve(
            Backfill(
                dataset=options.dataset,
                home=folder,
                source=options.source,
                models=["mrf_dense"],
                protocols=["strong_generalization"],
                seed=options.seed,
            )
        )
        for line in rows(run):
            print(line, flush=True)


if __name__ == "__main__":
    main()
