"""Check random rules on random lists, rule by rule and against a plain implementation of the rules.

    python -m benchmarks.reliability.rules [--cases 1000000] [--seed 0]

A case is a set of rules and one user's list. Prints the number of cases, the breaches of each rule, the lists that are
shorter than asked although an allowed item would fit, and the lists that differ from those of the plain implementation
(`benchmarks/reliability/rule_oracle.py`). Exit status: 0 if there are none, else 1.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from benchmarks.reliability.rule_oracle import (
    RuleCase,
    Shop,
    draw_case,
    draw_shop,
    list_allowed_items,
    list_categories,
    select_naively,
)
from oneclass.tasks.rules.selection import Catalogue, Selection, Selector, compile_rules, select_lists
from oneclass.tasks.rules.settings import DeclaredRules

USERS, CASES_PER_SHOP = 100, 20
CHECKS = ("not allowed", "repeated", "too many of a category", "pins not first", "not full", "differs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator, start = random.Random(options.seed), time.monotonic()
    counts, cases = Counter[str](), 0
    while cases < options.cases:
        shop = draw_shop(generator, generator.choices([5, 20, 60, 600], [13, 13, 13, 1])[0], USERS)
        for _ in range(CASES_PER_SHOP):
            case, exclude_seen = draw_case(generator, len(shop.items)), generator.random() < 0.5
            for user, chosen in enumerate(select_all(shop, case, exclude_seen=exclude_seen)):
                counts.update(find_breaches(shop, case, user, chosen, exclude_seen=exclude_seen))
                cases += 1
    print(f"{cases:,} cases in {time.monotonic() - start:.0f} s, seed {options.seed}")
    for check in CHECKS:
        print(f"{check:>24}: {counts[check]}")
    return int(counts.total() > 0)


def select_all(shop: Shop, case: RuleCase, *, exclude_seen: bool) -> list[list[int]]:
    """Select the list of each user by the project's own code."""
    attributes = {"item": shop.build_table("item"), "user": shop.build_table("user")}
    ids = pl.Series([item["item_id"] for item in shop.items])
    catalogue = Catalogue(ids, pl.Series([item["history.users"] for item in shop.items]), attributes)
    name = "home" if case.placement else None
    declared = DeclaredRules(rules=case.rules, placements={name: case.placement} if name else {})
    compiled = compile_rules(declared, catalogue.item_kinds, catalogue.user_kinds, name)
    counts = pl.Series([user["history.items"] for user in shop.users])
    people = catalogue.describe_users(pl.Series([user["user_id"] for user in shop.users]), counts)
    sets, constraints = Selector(compiled, catalogue).constrain(people)
    excluded = build_matrix(shop.excluded, len(ids))
    selection = Selection(case.n, constraints, sets, excluded, exclude_seen)
    lists = select_lists(shop.scores, build_matrix(shop.histories, len(ids)), selection)[0]
    return [[int(item) for item in row if item >= 0] for row in lists]


def build_matrix(rows: Sequence[set[int]], width: int) -> csr_matrix:
    """Return a (rows, width) matrix with a one for each member of a row."""
    indices = [item for row in rows for item in sorted(row)]
    indptr = np.cumsum([0, *map(len, rows)])
    return csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), width))


def find_breaches(shop: Shop, case: RuleCase, user: int, chosen: list[int], *, exclude_seen: bool) -> list[str]:
    """Name the checks that a list fails."""
    allowed = list_allowed_items(shop, case, user, exclude_seen=exclude_seen)
    counts = Counter(category for item in chosen for category in list_categories(shop.items[item], case.limits))
    full = {category for category in counts if counts[category] >= case.limits[category[0]]}
    left = [item for item in allowed if item not in chosen]
    fits = [item for item in left if full.isdisjoint(list_categories(shop.items[item], case.limits))]
    pinned = [item for item in chosen if shop.items[item]["item_id"] in case.rules.pinned]
    order = [case.rules.pinned.index(shop.items[item]["item_id"]) for item in pinned]
    failed = {
        "not allowed": not set(chosen) <= set(allowed),
        "repeated": len(set(chosen)) < len(chosen),
        "too many of a category": any(counts[category] > case.limits[category[0]] for category in counts),
        "pins not first": chosen[: len(pinned)] != pinned or order != sorted(order),
        "not full": len(chosen) > case.n or (len(chosen) < case.n and bool(fits)),
        "differs": chosen != select_naively(shop, case, user, allowed),
    }
    return [check for check, is_failed in failed.items() if is_failed]


if __name__ == "__main__":
    raise SystemExit(main())
