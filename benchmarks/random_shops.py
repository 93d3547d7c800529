"""Walk random small shops through random nights, and compare all that is published with a shop by brute force.

    python -m benchmarks.random_shops [--shops 100] [--first 0] [--seed 0]

A shop has orders and returns, new customers every night, a table of products or none, and rules and a placement that
change. After its first night come nights with and without events, rollbacks, promotions by hand and people who are
forgotten, in random order, while a server answers. After each the tables of the warehouse, the published files and the
server's answers must be the lists of `tests/shop_model.py`, and no file may have a forgotten person's id. Exit status:
0 if all are, else 1. A shop follows from its number. For a small run: `--shops 1`.
"""

import contextlib
import io
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
from prefect.settings import PREFECT_API_URL, temporary_settings

from benchmarks.common import parse_options
from oneclass.flows import commands
from oneclass.flows.prefect_server import launch_server
from tests.shop_model import ShopModel, group_rows

NIGHT = ("--models", "popularity", "--protocols", "leave_one_out", "--set", "publish.cold_share=0")
STEPS = {"night": 4, "quiet night": 1, "rollback": 2, "promote": 2, "forget": 2}  # with their weights


class Walk:
    """A shop in a home, and the shop by brute force beside it."""

    def __init__(self, root: Path, generator: random.Random) -> None:
        self.root, self.home, self.generator = root, root / "shop", generator
        self.shop, self.gone = ShopModel.draw(generator), set[str]()
        for folder in (root / "datasets", self.home / "landing"):
            folder.mkdir(parents=True)

    def take_step(self, step: str) -> str:
        """Take a step in both; returns what went wrong, if anything."""
        shop, wanted = self.shop, 0
        if "night" in step:
            if step == "night":
                shop.events += (events := shop.draw_events())
                self.gone -= {user for user, _, _ in events}  # who came again
                text = "\n".join(["user,item,event", *map(",".join, events), ""])
                (self.home / "landing" / f"{time.time_ns()}.csv").write_text(text)
                shop.draw_rules()
                shop.write_declaration(self.root / "datasets")
            wanted = 0 if shop.compute_lists() else 1
            seen = f"publish.seen={'include' if shop.seen else 'exclude'}"
            words = ["backfill", *NIGHT, seen, f"publish.top_n={shop.top_n}"]
        elif step == "rollback":
            wanted, words = 0 if shop.roll_back() else 2, ["promote", "--rollback"]
        elif step == "promote":
            wanted, words = 0 if shop.compute_lists() else 1, ["promote", "--model", "popularity"]
        else:
            gone = step.partition(" ")[2] or self.generator.choice(sorted({user for user, _, _ in shop.events}))
            self.gone.add(gone)
            shop.forget(gone)
            wanted, words = int(shop.leaves_nothing()), ["forget", "--user", gone]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = commands.main(words[0], ["--dataset", "shop", "--home", str(self.root), *words[1:]])
        if status != wanted:
            return f"status {status} instead of {wanted}: {printed.getvalue()[-600:]}"
        if step.startswith("forget") and status == 1:  # no rule may leave nothing: mend it, and repeat the command
            shop.rules = {}
            shop.write_declaration(self.root / "datasets")
            self.gone.remove(gone)
            return self.take_step(f"forget {gone}")
        if step != "rollback" and status == 0 and shop.compute_lists():
            run_id = os.readlink(self.home / "published").rpartition("/")[2]
            if run_id != shop.current:
                shop.publish(run_id)
            elif "the same score, for everybody" not in printed.getvalue():  # which a gate refuses
                return f"nothing new is published: {printed.getvalue()[-600:]}"
        return self.find_difference()

    def find_difference(self) -> str:
        """Describe what differs from the shop by brute force, or has a forgotten person's id."""
        select = "select '' as placement, user_id, rank, item_id from {}recommendations"
        placed = " union all select placement, user_id, rank, item_id from {}placements"
        for name, schema in (("warehouse.duckdb", "published."), ("published/published.duckdb", "")):
            if not (self.home / name).exists():
                continue
            with duckdb.connect(str(self.home / name), read_only=True) as connection:
                found = group_rows(connection.execute((select + placed).format(schema, schema)).fetchall())
            for key in sorted(found.keys() | self.shop.lists.keys()):
                if found.get(key) != (wanted := self.shop.lists.get(key)):
                    return f"{name}: {key} has {found.get(key)} instead of {wanted}"
        for path in self.root.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            if bad := [user for user in self.gone if user.encode() in content]:
                return f"{path}: has {bad[0]}"
        return ""

    def find_wrong_answer(self, address: str) -> str:
        """Describe what the server answers otherwise to a customer, and to a person who is none any more."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and ask(f"{address}/health")[1].get("publication") != self.shop.current:
            time.sleep(0.1)
        listed = [user for placement, user in self.shop.lists if not placement]
        for user in [self.generator.choice(listed), *sorted(self.gone)[:1]]:
            status, answer = ask(f"{address}/recommend?user={user}&n={self.shop.top_n}")
            items = [row["item_id"] for row in answer.get("items", [])]
            if (status, items) != (404 if user in self.gone else 200, self.shop.lists.get(("", user), [])):
                return f"the server answers {status} {answer} for {user}"
        return ""


def ask(address: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the answer of a server; nothing from one that is starting."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


@patch("oneclass.tasks.publish.stage.KEPT", 9)
def walk_shop(root: Path, generator: random.Random) -> str:
    """Walk one shop; returns what went wrong, if anything."""
    walk, taken = Walk(root, generator), ["night"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ["flows.serve", "--dataset", "shop", "--home", str(root), "--port", port]
    with (root / "serve.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)
    for step in generator.choices(list(STEPS), list(STEPS.values()), k=6):
        wrong = walk.take_step(taken[-1])
        if wrong or not walk.shop.current or (wrong := walk.find_wrong_answer(f"http://127.0.0.1:{port}")):
            break
        taken.append(step)
    server.terminate()
    server.wait()
    return f"{', '.join(taken)}: {wrong}" if wrong else ""


def main() -> int:
    given, differing = parse_options(__doc__, shops=100, first=0, seed=0), 0
    with tempfile.TemporaryDirectory() as folder:
        server, address = launch_server({**os.environ, "PREFECT_HOME": f"{folder}/prefect"})  # one for all runs
        urllib.request.urlopen(f"{address}/health", timeout=180).close()
        with temporary_settings({PREFECT_API_URL: address}):
            for number in range(given.first, given.first + given.shops):
                wrong = walk_shop(Path(folder, str(number)), random.Random(f"{given.seed} {number}"))
                differing += bool(wrong)
                print(f"shop {number}: {wrong or 'as by brute force'}", flush=True)
        server.terminate()
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
