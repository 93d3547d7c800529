"""Count how many tables of equally good lists call one of them worse than the best.

    python -m benchmarks.accuracy.null_marks [--tables 10000] [--users 200] [--seed 0]

Each table has m lists whose nDCG has the same distribution for every user, so any mark is wrong. A user's nDCG
is high or low for all lists alike (correlation about 0.85 within a family of lists, 0.8 between two families), lies
between 0 and 1, and is exactly 0 for some. Columns: the share of tables with a mark, ± one standard error, by

- the plain paired t-test of each list against the best,
- Holm's procedure over these m - 1 tests, which ignores that the best is chosen by the same users,
- Hsu's multiple comparisons with the best: the one-sided tests with Bonferroni's bound on Dunnett's critical value,
- the marks of every table of the product, `oneclass.models.evaluation.multiple_tests.adjust_against_best`.
"""

import argparse

import numpy as np

from oneclass.models.evaluation.metrics import compare_paired
from oneclass.models.evaluation.multiple_tests import ALPHA, adjust_against_best, adjust_holm

LIST_COUNTS = (2, 3, 5, 8, 14)
PROCEDURES = {
    "uncorrected": lambda p_values: p_values,
    "Holm, best fixed": adjust_holm,
    "Hsu": lambda p_values: len(p_values) * p_values / 2,
    "product": adjust_against_best,
}


def simulate_lists(lists: int, users: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the nDCG of equally good lists, float64 (lists, users)."""
    user, family, own = (generator.standard_normal((count, users)) for count in (1, 2, lists))
    latent = np.sqrt(0.8) * user + np.sqrt(0.05) * family[np.arange(lists) % 2] + np.sqrt(0.15) * own
    return np.clip(0.3 + 0.25 * latent, 0, 1)


def count_marked_tables(lists: int, users: int, tables: int, seed: int) -> dict[str, int]:
    """Count the tables with a list that is marked as worse than the best, by procedure."""
    generator, marked = np.random.default_rng(seed), dict.fromkeys(PROCEDURES, 0)
    for _ in range(tables):
        values = simulate_lists(lists, users, generator)
        best = int(values.mean(axis=1).argmax())
        comparisons = [compare_paired(values[best], other) for i, other in enumerate(values) if i != best]
        p_values = np.array([comparison.p_value for comparison in comparisons])
        for name, adjust in PROCEDURES.items():
            marked[name] += bool((adjust(p_values) < ALPHA).any())
    return marked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000, help="simulated tables for each number of lists")
    parser.add_argument("--users", type=int, default=200, help="test users of a table")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"| lists | {' | '.join(PROCEDURES)} |\n|---|{'---|' * len(PROCEDURES)}")
    for lists in LIST_COUNTS:
        marked = count_marked_tables(lists, options.users, options.tables, options.seed)
        shares = [count / options.tables for count in marked.values()]
        cells = [f"{share:.3f} ± {np.sqrt(share * (1 - share) / options.tables):.3f}" for share in shares]
        print(f"| {lists} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
