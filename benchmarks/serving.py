"""Measure the server under load: latencies, CPU time of an answer, and answers while the publication changes.

    python -m benchmarks.serving [--items 3500] [--model slim] [--connections 4] [--seconds 20]

Publishes a model on two nights of a generated log, starts `python -m flows.serve` in a process of its own, and sends
requests over connections that stay open, each with the next as soon as it has its answer, half of them for a user and
half for a history of three items. After half of `--seconds` `flows.promote --rollback` publishes the first night again.
An answer that is not 200, or does not come, is lost; one whose items are not those of the publication that it names is
mixed. The client uses the same cores, so the server alone answers more. The CPU time of an answer is the server's in
the first half. For a small run: `--items 200 --model popularity`.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

import oneclass
from benchmarks.common import parse_options, run_command

USERS_ASKED, HISTORY_ITEMS, N, USERS_PER_ITEM, LIKES_PER_USER = 500, 3, 20, 1.2, 30
Answer = tuple[str, str, tuple[str, ...], float]  # query, publication or error, items, seconds


def send_requests(port: int, queries: list[str], stop: threading.Event, answers: list[Answer]) -> None:
    """Send queries over one connection, one after the other, until the event is set."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not stop.is_set():
        query, items, began = queries[len(answers) % len(queries)], (), time.perf_counter()
        try:
            connection.request("GET", f"/recommend?n={N}&{query}")
            answer = connection.getresponse()
            found, outcome = json.loads(answer.read()), f"status {answer.status}"
            if answer.status == 200:
                outcome, items = found["publication"], tuple(one["item_id"] for one in found["items"])
        except (OSError, http.client.HTTPException) as error:
            outcome = type(error).__name__
            connection.close()
        answers.append((query, outcome, items, time.perf_counter() - began))


def list_expected(home: Path, queries: list[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the items of each query by the current publication, under its name."""
    shop, expected = oneclass.load(home, "demo"), {}
    for query in queries:
        values = [pair.partition("=")[2] for pair in query.split("&")]
        found = shop.recommend_for(values[0], n=N) if query.startswith("user=") else shop.recommend(values, n=N)
        expected[query] = tuple(found["item_id"])
    return {(home / "demo" / "published").resolve().name: expected}


def read_cpu_seconds(pid: int) -> float:
    """Read the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_load(home: Path, options: argparse.Namespace) -> int:
    """Send requests while the publication changes, and print rates, latencies, and what was lost or mixed."""
    shop, generator, queries = oneclass.load(home, "demo"), np.random.default_rng(0), []
    users, items = shop.users["user_id"].to_list(), shop.items["item_id"].to_list()
    for user in generator.choice(len(users), min(USERS_ASKED, len(users)), replace=False):
        history = generator.choice(len(items), HISTORY_ITEMS, replace=False)
        queries += [f"user={users[user]}", "&".join(f"item={items[item]}" for item in history)]
    expected, answers = list_expected(home, queries), [[] for _ in range(options.connections)]
    command, stop = [sys.executable, "-m", "flows.serve", "--dataset", "demo", "--home", str(home)], threading.Event()
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)", server.stdout.readline())[1])
            began = time.monotonic()
            parts = [(port, queries[at :: options.connections], stop, own) for at, own in enumerate(answers)]
            clients = [threading.Thread(target=send_requests, args=part) for part in parts]
            cpu_before = read_cpu_seconds(server.pid)
            [client.start() for client in clients]
            time.sleep(options.seconds / 2)
            answered, cpu = sum(map(len, answers)), read_cpu_seconds(server.pid) - cpu_before
            run_command(["flows.promote", "--dataset", "demo", "--home", home, "--rollback"], home / "log")
            time.sleep(options.seconds / 2)
            stop.set()
            [client.join() for client in clients]
            elapsed = time.monotonic() - began
        finally:
            stop.set()
            server.terminate()
    expected |= list_expected(home, queries)
    joined = [answer for own in answers for answer in own]
    p50, p99 = np.percentile([seconds for *_, seconds in joined], [50, 99]) * 1e3
    lost = Counter(outcome for _, outcome, *_ in joined if outcome not in expected)
    mixed = sum(outcome in expected and items != expected[outcome][query] for query, outcome, items, _ in joined)
    names = {outcome for _, outcome, *_ in joined} & set(expected)
    cpu_ms = cpu / max(1, answered) * 1e3
    print(f"{len(joined) / elapsed:,.0f} requests a second, p50 {p50:.2f}, p99 {p99:.2f}, CPU time {cpu_ms:.2f} ms")
    print(f"{len(joined):,} answers by {len(names)} publications; lost {lost.total()} {dict(lost)}, mixed {mixed}")
    return int(bool(lost or mixed))


def main() -> int:
    options = parse_options(__doc__, items=3500, model="slim", connections=4, seconds=20.0)
    users = round(USERS_PER_ITEM * options.items)
    settings = ["train.tune=off", "publish.margin=1e9", "publish.min_size_ratio=0"]
    settings += [f"demo.users={users}", f"demo.items={options.items}", f"demo.likes={LIKES_PER_USER * users}"]
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        words = ["flows.backfill", "--dataset", "demo", "--home", home, "--models", options.model]
        words += ["--protocols", "leave_one_out", "--set", *settings]
        for likes in ([], ["binarize.threshold=5"]):
            run_command([*words, *likes], home / "log")
        return run_load(home, options)


if __name__ == "__main__":
    sys.exit(main())
