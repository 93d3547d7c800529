"""What time decides: the champions of `next_events` and of `strong_generalization`, on logs with times.

    python -m benchmarks.accuracy.protocol_choice --root ../shared/data [--logs ml-100k] [--home FOLDER]

Runs the whole pipeline on each log; `orders` is generated, with customers who return. Both protocols choose a list on
their validation users by the rule that publishes (`tasks.publish.choice`). The loss is that of the list that the other
protocol would publish: its metric minus that of this protocol's own, paired over this protocol's test users, which
neither choice has seen, but for the folds of small logs.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy.repeats import GENERATED, SHOP, generate_events
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION, PROTOCOLS, PUBLISH_PROTOCOLS, choose_publish_protocol
from oneclass.tasks.publish.choice import ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.warehouse import select

LOGS = {
    "demo": None,
    "orders": None,
    "ml-100k": "ml-100k/u.data",
    "ml-latest-small": "ml-latest-small/ratings.csv",
}
# A shop whose customers return: the settings of `groceries` in benchmarks.accuracy.repeats, smaller.
ORDERS = replace(GENERATED["groceries"], demo=SHOP.model_copy(update={"users": 1000, "items": 500, "likes": 15_000}))
COLUMNS = ("log", "protocol", "decides", "champion", "metric on its test users", "by the other protocol", "paired loss")


def publish_log(root: Path, log: str, folder: Path, extra: list[str]) -> Home:
    """Run the pipeline on a log and return its home."""
    file = LOGS[log] and root / LOGS[log]
    if log == "orders":
        file = folder / "orders.csv"
        write_orders(file)
    command = [sys.executable, "-m", "flows.backfill", "--dataset", log, "--home", str(folder), *extra]
    subprocess.run([*command, *(["--source", str(file)] if file else [])], check=True, stdout=subprocess.DEVNULL)
    return Home(folder, log)


def write_orders(file: Path) -> None:
    """Write the generated orders as a CSV file of customer, product and date."""
    users, items, days = generate_events(ORDERS, seed=3)
    dates = np.datetime64("2024-01-01") + days
    rows = [f"c{user},p{item},{date}" for user, item, date in zip(users, items, dates, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["customer,product,date", *rows]) + "\n")


def compare_choices(home: Home) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a log's row for each protocol that may choose."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        run_id = runs.find_latest_evaluated(connection)
        assert run_id is not None
        names = "select distinct model from evaluation.metrics where run_id = ?"
        candidates = [model for (model,) in connection.execute(names, [run_id]).fetchall()]
        by_time = "select true from evaluation.metrics where run_id = ? and protocol = 'next_events' limit 1"
        returns = connection.execute(by_time, [run_id]).fetchall()
    splits = ["strong_generalization", *([NEXT_EVENTS_VALIDATION] if returns else [])]
    champions = {
        name: choose_model(home, run_id, PublishSettings(), candidates, name)
        for name, split in PUBLISH_PROTOCOLS.items()
        if split in splits
    }
    for protocol, champion in champions.items():
        other = next((other for name, other in champions.items() if name != protocol), None)
        decides = "yes" if choose_publish_protocol("auto", splits) == protocol else ""
        loss = _format_loss(home, run_id, protocol, champion, other) if other else ""
        value = _format_value(home, run_id, protocol, champion)
        yield home.dataset, protocol, decides, champion.model, value, other.model if other else "", loss


def _format_value(home: Home, run_id: str, protocol: str, champion: ChosenModel) -> str:
    query = """
        select value, standard_error, users from evaluation.metrics
        where run_id = ? and protocol = ? and (model, score) = (?, ?) and metric = ?
    """
    key = [run_id, protocol, champion.model, champion.score, PROTOCOLS[protocol].main_metric]
    with warehouse.open_warehouse(home, read_only=True) as connection:
        value, error, users = warehouse.fetch_row(connection, query, key)
    return f"{value:.4f} ± {error:.4f}, {users:,} users"


def _format_loss(home: Home, run_id: str, protocol: str, champion: ChosenModel, other: ChosenModel) -> str:
    if other == champion:
        return "the same"
    pair = {"model": other.model, "score": other.score, "other_model": champion.model, "other_score": champion.score}
    with warehouse.open_warehouse(home, read_only=True) as connection:
        values = {"run_id": run_id, "protocol": protocol, "metric": PROTOCOLS[protocol].main_metric, **pair}
        row = select(connection, "publish/paired_difference", **values).row(0, named=True)
    return f"{row['difference']:+.4f} ± {row['standard_error']:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of the real logs")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--home", type=Path, help="keep the homes here; by default a temporary folder")
    parser.add_argument("--arguments", nargs=argparse.REMAINDER, default=[], help="more arguments of flows.backfill")
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for log in options.logs:
            home = publish_log(options.root, log, options.home or Path(temporary), options.arguments)
            for cells in compare_choices(home):
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
