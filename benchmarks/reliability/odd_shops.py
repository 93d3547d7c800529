"""Run nights and questions on small random shops with attributes, rules and settings; none may end with an error.

    python -m benchmarks.reliability.odd_shops [--shops 20] [--seed 0]

A shop has a random log, with times, values and kinds of events or without, tables of attributes of items (some of which
nobody likes) and of users, rules, a placement, models, protocols and settings, each with a chance. Its nights read four
fifths of the log, then the rest, then nothing new; a user's and an item's recommendations, a list for everybody, an
explanation, a citation, the removal of a user and a rollback follow. Prints a line for each shop, for each command that
failed, and for a first night that was refused. A command may end with status 0, or with 2 where it refuses its input
and says why. Exit status: 0 if all did, else 1. A shop follows from `--seed` and its number.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.reliability.odd_shapes import BROKEN_RULE, draw_shape
from oneclass.models.registry import MODELS

KINDS = ("view", "buy", "return")
PROTOCOLS = ("strong_generalization", "leave_one_out", "next_events", "leave_one_out,next_events")
SETTINGS = (  # of each line one with a chance of a quarter
    ("publish.seen=include", "publish.seen=exclude"),
    ("publish.explore=thompson", "publish.explore=bonus", "publish.explore=mixture"),
    ("split.order=true",),
    ("split.times=true",),
    ("binarize.explicit_negatives=true",),
    ("binarize.min_user_edges=2", "binarize.k_core=2", "binarize.min_item_edges=3"),
    ("split.held_out_share=0.3", "split.min_validation_users=0", "split.folds=2"),
    ("publish.top_n=1", "publish.top_n=200"),
    ("publish.prefer=best",),
    ("train.tune=off", "train.tune=always"),
    ("binarize.sum_values=true",),
    ("publish.cold_share=1", "publish.cold_share=0"),
    ("train.warm_start=true",),
)


def write_shop(home: Path, generator: np.random.Generator) -> tuple[list[str], dict[str, bool]]:
    """Write the data set's file and its tables; returns the lines of the log, its header first, and what there is."""
    names = ("times", "values", "kinds", "items", "users", "rules")
    has = dict(zip(names, (generator.random(6) < [0.7, 0.4, 0.4, 0.6, 0.4, 0.5]).tolist(), strict=True))
    events = draw_shape(generator)
    (home / "datasets").mkdir(parents=True)
    value, kind = '["value"]' if has["values"] else "[]", ', event = ["event"]' if has["kinds"] else ""
    columns = f'user = ["user"], item = ["item"], time = ["time"], value = {value}{kind}'
    lines = ['files = ["*.csv"]', f"columns = {{{columns}}}"]
    if has["kinds"]:
        lines += ["[events]", *(f"{kind} = {generator.choice([-1.0, 0.0, 0.5, 1.0, 3.0])}" for kind in KINDS)]
    if has["items"]:
        lines += write_items(home / "datasets" / "items.csv", max(item for _, item in events) + 1, generator)
    if has["users"]:
        table = [f"u{user},{generator.integers(10, 80)},{generator.choice(['n', 's', ''])}" for user, _ in set(events)]
        unique = list({row.partition(",")[0]: row for row in table}.values())
        (home / "datasets" / "users.csv").write_text("\n".join(["id,age,region", *unique]) + "\n")
        lines += ["[users]", 'file = "users.csv"', 'id = "id"', 'category = ["region"]', 'number = ["age"]']
    if has["rules"]:
        lines += ["[rules]", *draw_rules(has, generator)]
        lines += ["[placements.home]", f"n = {generator.integers(1, 8)}"] if generator.random() < 0.6 else []
    (home / "datasets" / "shop.toml").write_text("\n".join(lines) + "\n")
    return write_events(events, has, generator), has


def write_items(path: Path, count: int, generator: np.random.Generator) -> list[str]:
    """Write a table of items, some of which are missing and some new; returns the lines that declare it."""
    rows = ["id,genre,tags,price,stock"]
    for item in range(count + int(generator.choice([0, 3, 40]))):
        if generator.random() < 0.9:
            genre, tags = generator.choice(["a", "b", "c", ""]), generator.choice(["x|y", "y", "", "z|x"])
            rows.append(f"i{item},{genre},{tags},{round(generator.uniform(1, 30), 2)},{generator.integers(0, 4)}")
    path.write_text("\n".join(rows) + "\n")
    columns = 'category = ["genre"]', 'categories = ["tags"]', 'separator = "|"', 'number = ["price"]'
    return ["[items]", 'file = "items.csv"', 'id = "id"', *columns]


def draw_rules(has: dict[str, bool], generator: np.random.Generator) -> list[str]:
    """Draw the lines of `[rules]`."""
    rules = [f'pinned = ["i{generator.integers(0, 40)}"]', f'banned = ["i{generator.integers(0, 40)}", "i0"]']
    if has["items"]:
        conditions = ["stock > 0", "price < 20 and stock > 1", "stock > 99"]
        rules += [f'eligible = "{generator.choice(conditions)}"', 'boosts = [{when = "price > 10", by = 0.3}]']
        rules += [f"max_per_category = {{genre = {generator.integers(1, 4)}}}"]
    rules += ['not_event = ["return"]'] if has["kinds"] else []
    return [rule for rule in rules if generator.random() < 0.5]


def write_events(events: list[tuple[int, int]], has: dict[str, bool], generator: np.random.Generator) -> list[str]:
    """Return the lines of a log, the header first."""
    days = int(generator.choice([0, 1, 60, 900]))
    header = ["user", "item", *["time"] * has["times"], *["value"] * has["values"], *["event"] * has["kinds"]]
    lines = [",".join(header)]
    for user, item in events:
        cells = [f"u{user}", f"i{item}"]
        cells += [str(1_600_000_000 + int(generator.integers(0, 86_400 * days + 1)))] if has["times"] else []
        cells += [str(generator.choice([1, 2, 3, 4, 5, -1, 0.5]))] if has["values"] else []
        cells += [str(generator.choice(KINDS, p=[0.6, 0.3, 0.1]))] if has["kinds"] else []
        lines.append(",".join(cells))
    return lines


def draw_options(generator: np.random.Generator) -> list[str]:
    """Draw the models, protocols and settings of the nights."""
    options = []
    if generator.random() < 0.5:
        names = [name for name in MODELS if name not in ("cdae", "mult_dae", "mult_vae")]  # which need PyTorch
        options += ["--models", ",".join(generator.choice(names, int(generator.integers(1, 6)), replace=False))]
    if generator.random() < 0.3:
        options += ["--protocols", str(generator.choice(PROTOCOLS))]
    settings = [str(generator.choice(choices)) for choices in SETTINGS if generator.random() < 0.25]
    return options + (["--set", *settings] if settings else [])


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Run a command; returns its status, and the first broken rule or its last lines."""
    result = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, check=False, text=True)
    output = result.stdout + result.stderr
    broken = BROKEN_RULE.search(output)
    return result.returncode, " ".join(broken.groups()) if broken else " ".join(output.strip().splitlines()[-3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shops", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = commands = 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["PREFECT_HOME"] = str(Path(name) / "prefect")
        for number in range(options.shops):
            generator, home = np.random.default_rng([options.seed, number]), Path(name) / f"home_{number}"
            (header, *lines), has = write_shop(home, generator)
            drawn, landing = draw_options(generator), home / "shop" / "landing"
            landing.mkdir(parents=True)
            cut = 1 + len(lines) * 4 // 5
            nights = [lines[:cut], lines[cut:], []]
            user, item = lines[0].split(",")[:2]
            columns = ", ".join(column for column in has if has[column])
            print(f"shop {number}: {len(lines)} events, {columns};", *drawn, flush=True)
            questions = [
                *(["flows.backfill", *drawn] for _ in nights),
                ["flows.recommend", "--user", user],
                ["flows.recommend", "--item", item, "unknown"],
                ["flows.recommend", "--list", "popular"],
                ["flows.explain", "--user", user],
                ["flows.cite"],
                ["flows.forget", "--user", user],
                ["flows.promote", "--rollback"],
            ]
            for index, (command, *more) in enumerate(questions):
                if index < len(nights) and nights[index]:
                    (landing / f"{index}.csv").write_text("\n".join([header, *nights[index]]) + "\n")
                status, message = run_command([command, "--dataset", "shop", "--home", str(home), *more])
                failed, commands = failed + (status not in (0, 2)), commands + 1
                if status not in (0, 2) or (index == 0 and status):
                    print(f"    {command} {' '.join(more)}: status {status}, {message}", flush=True)
                if index == 0 and status:
                    break
    print(f"{failed} of {commands} commands failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
