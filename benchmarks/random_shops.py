"""Run nights and questions on small random shops with attributes, rules and settings, and check their lists.

    python -m benchmarks.random_shops [--shops 20] [--seed 0]
    python -m benchmarks.random_shops --shops 0 --lists 1000000

A shop has a random log, with times, values and kinds of events or without, tables of attributes of items and users,
rules, a placement, models, protocols and settings, each with a chance. Its nights read four fifths of the log, then the
rest, then nothing new; questions, the removal of a user and a rollback follow. A command may end with status 0, or with
2 where it refuses its input and says why; no list may have gaps, an item twice or a banned one. `--lists` compares so
many lists by drawn rules with a brute-force reading of the rules (`tests/tasks/rules/oracle.py`).

Prints a line for each shop, for each command that failed, and for a first night that was refused. Exit status: 0 if
nothing failed or differed, else 1. A shop follows from `--seed` and its number. For a small run: `--shops 1`.
"""

import argparse
import random
import tempfile
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.common import run_command
from oneclass.models.registry import MODELS
from tests.tasks.rules import oracle

KINDS, USERS_OF_LISTS = ("view", "buy", "return"), 100
MODELS_OF_SHOPS = [name for name in MODELS if name not in ("cdae", "mult_dae", "mult_vae")]  # which need PyTorch
PROTOCOLS = ("strong_generalization", "leave_one_out", "next_events", "leave_one_out,next_events")
SETTINGS = (  # of each line one with a chance of a quarter
    ("publish.seen=include", "publish.seen=exclude"), ("publish.explore=thompson",), ("split.order=true",),
    ("split.times=true",), ("binarize.explicit_negatives=true",), ("publish.prefer=simplest",),
    ("binarize.min_user_edges=2", "binarize.k_core=2", "binarize.min_item_edges=3"),
    ("split.held_out_share=0.3", "split.min_validation_users=0", "split.folds=2"),
    ("publish.top_n=1", "publish.top_n=200"), ("train.tune=off", "train.tune=always"), ("binarize.sum_values=true",),
    ("publish.cold_share=1", "publish.cold_share=0"), ("train.warm_start=true",),
)  # fmt: skip


def draw_events(generator: np.random.Generator) -> list[tuple[int, int]]:
    """Draw the users and items of events, each uniform or with a long tail."""
    columns, events = [], int(generator.integers(1, 400))
    for _ in range(2):
        weights = (1.0 + np.arange(int(np.exp(generator.uniform(0, np.log(200)))))) ** -generator.choice([0.0, 1, 2])
        columns.append(generator.choice(len(weights), events, p=weights / weights.sum()).tolist())
    return list(zip(*columns, strict=True))


def write_shop(home: Path, generator: np.random.Generator) -> tuple[str, list[str], str]:
    """Write the data set's file and its tables; returns the log's header, its lines, and what there is in words."""
    names = ("time", "value", "event", "items", "users", "rules")
    has = {name: generator.random() < share for name, share in zip(names, (0.7, 0.4, 0.4, 0.6, 0.4, 0.5), strict=True)}
    events, folder = draw_events(generator), home / "datasets"
    folder.mkdir(parents=True)
    known = ", ".join(f'{name} = ["{name}"]' for name in ("user", "item", "time", "event") if has.get(name, True))
    toml = ['files = ["*.csv"]', f"columns = {{{known}, value = {['value'] if has['value'] else []}}}"]
    if has["event"]:
        toml += ["[events]", *(f"{kind} = {generator.choice([-1.0, 0.0, 0.5, 1.0, 3.0])}" for kind in KINDS)]
    if has["items"]:
        rows = [f"i{item},{generator.choice(['a', 'b', ''])},{generator.choice(['x|y', 'y', ''])},"
                f"{generator.uniform(1, 30):.2f},{generator.integers(0, 4)}"
                for item in range(max(item for _, item in events) + generator.choice([1, 4, 40]))
                if generator.random() < 0.9]  # fmt: skip
        (folder / "items.csv").write_text("\n".join(["id,genre,tags,price,stock", *rows]) + "\n")
        toml += ["[items]", 'file = "items.csv"', 'id = "id"', 'category = ["genre"]', 'categories = ["tags"]',
                 'separator = "|"', 'number = ["price"]']  # fmt: skip
    if has["users"]:
        rows = [
            f"u{user},{generator.integers(10, 80)},{generator.choice(['n', ''])}" for user in {u for u, _ in events}
        ]
        (folder / "users.csv").write_text("\n".join(["id,age,region", *rows]) + "\n")
        toml += ["[users]", 'file = "users.csv"', 'id = "id"', 'category = ["region"]', 'number = ["age"]']
    if has["rules"]:
        rules = [f'pinned = ["i{generator.integers(0, 40)}"]']
        if has["items"]:
            conditions = ["stock > 0", "price < 20 and stock > 1", "stock > 99"]
            rules += [f'eligible = "{generator.choice(conditions)}"', 'boosts = [{when = "price > 10", by = 0.3}]',
                      f"max_per_category = {{genre = {generator.integers(1, 4)}}}"]  # fmt: skip
        rules += ['not_event = ["return"]'] if has["event"] else []
        toml += ["[rules]", 'banned = ["i0"]', *(rule for rule in rules if generator.random() < 0.5)]
        toml += ["[placements.home]", f"n = {generator.integers(1, 8)}"] if generator.random() < 0.6 else []
    (folder / "shop.toml").write_text("\n".join(toml).replace("'", '"') + "\n")
    days, lines = int(generator.choice([0, 1, 60, 900])), []
    for user, item in events:
        cells = {"time": 1_600_000_000 + int(generator.integers(0, 86_400 * days + 1)),
                 "value": generator.choice([1, 2, 3, 4, 5, -1, 0.5]),
                 "event": generator.choice(KINDS, p=[0.6, 0.3, 0.1])}  # fmt: skip
        lines.append(",".join([f"u{user}", f"i{item}", *(str(cells[name]) for name in cells if has[name])]))
    header = ",".join(["user", "item", *(name for name in ("time", "value", "event") if has[name])])
    return header, lines, ", ".join(name for name in names if has[name])


def find_wrong_lists(home: Path, *, has_rules: bool) -> str:
    """Describe what the published lists break: ranks with gaps, items twice, or a banned item."""
    published = home / "shop" / "published" / "published.duckdb"
    if not published.exists():
        return ""
    with duckdb.connect(str(published), read_only=True) as connection:
        query = """select count(*) filter (n <> items or n <> last), sum(banned) from (
            select count(*) as n, count(distinct item_id) as items, max(rank) as last,
                count(*) filter (item_id = 'i0') as banned from recommendations group by user_id)"""
        broken, banned = connection.execute(query).fetchone()
    return f"{broken} lists with gaps, {banned} banned items" if broken or (has_rules and banned) else ""


def run_shop(home: Path, number: int, seed: int) -> int:
    """Run a shop's nights and questions; returns the number of failures."""
    generator, failed = np.random.default_rng([seed, number]), 0
    header, lines, has = write_shop(home, generator)
    landing, cut, drawn = home / "shop" / "landing", 1 + len(lines) * 4 // 5, []
    landing.mkdir(parents=True)
    if generator.random() < 0.5:
        drawn += ["--models", ",".join(generator.choice(MODELS_OF_SHOPS, int(generator.integers(1, 6)), replace=False))]
    if generator.random() < 0.3:
        drawn += ["--protocols", str(generator.choice(PROTOCOLS))]
    drawn += ["--set", "publish.keep=9", *(str(generator.choice(of)) for of in SETTINGS if generator.random() < 0.25)]
    print(f"shop {number}: {len(lines)} events, {has};", *drawn, flush=True)
    user, item = lines[0].split(",")[:2]
    nights = [lines[:cut], lines[cut:], []]
    questions = [["recommend", "--user", user], ["recommend", "--item", item, "unknown"],
                 ["recommend", "--list", "popular"], ["explain", "--user", user], ["cite"],
                 ["forget", "--user", user], ["promote", "--rollback"]]  # fmt: skip
    for index, (command, *more) in enumerate([*(["backfill", *drawn] for _ in nights), *questions]):
        if index < len(nights) and nights[index]:
            (landing / f"{index}.csv").write_text("\n".join([header, *nights[index]]) + "\n")
        log = home / f"{index}.log"
        words = [f"flows.{command}", "--dataset", "shop", "--home", home, *more]
        status = run_command(words, log, environment={"PREFECT_HOME": str(home / "prefect")}).result
        wrong = find_wrong_lists(home, has_rules="rules" in has) if command == "backfill" and not status else ""
        if status not in (0, 2) or wrong or (index == 0 and status):
            message = wrong or " ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
            print(f"    {command} {' '.join(more)}: status {status}, {message}", flush=True)
        failed += status not in (0, 2) or bool(wrong)
        if index == 0 and status:
            break
    return failed


def compare_lists(lists: int, seed: int) -> int:
    """Compare lists by drawn rules with a brute-force reading of the rules; returns how many differ."""
    generator, done, differing = random.Random(seed), 0, 0
    while done < lists:
        shop = oracle.draw_shop(generator, generator.choices([5, 20, 60, 600], [13, 13, 13, 1])[0], USERS_OF_LISTS)
        case, exclude_seen = oracle.draw_case(generator, len(shop.items)), generator.random() < 0.5
        for user, chosen in enumerate(oracle.select_all(shop, case, exclude_seen=exclude_seen)):
            allowed = oracle.list_allowed_items(shop, case, user, exclude_seen=exclude_seen)
            differing += chosen != oracle.select_naively(shop, case, user, allowed)
        done += USERS_OF_LISTS
    print(f"{done:,} lists by drawn rules, {differing} differ from the brute-force reading")
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shops", type=int, default=20)
    parser.add_argument("--lists", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = compare_lists(options.lists, options.seed) if options.lists else 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.shops):
            failed += run_shop(Path(folder) / f"home-{number}", number, options.seed)
    print(f"{options.shops} shops, {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
