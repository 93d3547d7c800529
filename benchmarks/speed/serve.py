"""Measure the server under load: requests a second and latencies, with publications switched while it answers.

    python -m benchmarks.speed.serve
    python -m benchmarks.speed.serve --items 41000 --model slim --connections 8 --seconds 20

The server is `python -m flows.serve` in a process of its own, on a drawn log (`benchmarks.speed.recommend`) with two
publications. Each connection stays open and sends the next request once it has its answer, half of them for a user and
half for a history of three items. After half of the time the link is switched to the other publication, after three
quarters back. An answer that is not 200, or does not come, is lost. The client uses the same cores, so the server
alone answers more. The CPU time of an answer is the server's in the first half, when it loads no publication.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.speed.recommend import draw_log, publish_model
from oneclass.flows import published
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home

USERS_ASKED, HISTORY_ITEMS = 500, 3


class Client(threading.Thread):
    """One connection; `seconds` and `answers` (publication or error) of its requests."""

    def __init__(self, port: int, paths: list[str], until: float) -> None:
        super().__init__()
        self.port, self.paths, self.until = port, paths, until
        self.seconds: list[float] = []
        self.answers: Counter[str] = Counter()

    def run(self) -> None:
        connection, number = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), 0
        while time.monotonic() < self.until:
            began = time.perf_counter()
            try:
                connection.request("GET", self.paths[number % len(self.paths)])
                answer = connection.getresponse()
                body = answer.read()
                outcome = json.loads(body)["publication"] if answer.status == 200 else f"status {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                outcome = type(error).__name__
                connection.close()
            self.seconds.append(time.perf_counter() - began)
            self.answers[outcome] += 1
            number += 1


def draw_paths(home: Home) -> list[str]:
    """Draw the paths of requests, for users and for histories in turn."""
    shop = published.load(home.root, home.dataset)
    users, items = shop.users["user_id"].to_list(), shop.items["item_id"].to_list()
    generator = np.random.default_rng(0)
    paths = []
    for user in generator.choice(len(users), USERS_ASKED):
        history = generator.choice(len(items), HISTORY_ITEMS)
        paths.append(f"/recommend?user={users[user]}")
        paths.append("/recommend?" + "&".join(f"item={items[item]}" for item in history))
    return paths


@contextmanager
def start_server(home: Home, workers: int = 1) -> Iterator[tuple[int, int]]:
    """Run the server for the block; yields its process id and its port once all workers are ready."""
    command = [sys.executable, "-m", "flows.serve", "--dataset", home.dataset, "--home", str(home.root), "--port", "0"]
    with subprocess.Popen([*command, "--workers", str(workers)], stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)/docs", server.stdout.readline())[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("GET", "/ready")
            connection.getresponse().read()
            connection.close()
            yield server.pid, port
        finally:
            server.terminate()
            server.wait(60)


def read_cpu_seconds(pid: int) -> float:
    """Read the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_load(home: Home, connections: int, seconds: float) -> None:
    """Send requests while the publication changes twice, and print rates and latencies."""
    current = home.published.resolve()
    [other] = [folder for folder in home.publications.iterdir() if folder != current]
    paths = draw_paths(home)
    with start_server(home) as (pid, port):
        until = time.monotonic() + seconds
        clients = [Client(port, paths[number::connections], until) for number in range(connections)]
        cpu_before = read_cpu_seconds(pid)
        for client in clients:
            client.start()
        time.sleep(seconds / 2)
        answered, cpu = sum(len(client.seconds) for client in clients), read_cpu_seconds(pid) - cpu_before
        publications.switch_link(home, other)
        time.sleep(seconds / 4)
        publications.switch_link(home, current)
        for client in clients:
            client.join()
    latencies = np.array([one for client in clients for one in client.seconds])
    answers = sum((client.answers for client in clients), Counter())
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
    print(
        f"{connections} connections, {seconds:.0f} s: {len(latencies) / seconds:,.0f} requests a second, p50 {p50:.2f} "
        f"ms, p99 {p99:.2f} ms, longest {latencies.max() * 1e3:.0f} ms"
    )
    print(f"CPU time of an answer: {cpu / answered * 1e3:.2f} ms")
    print("answered by: " + ", ".join(f"{outcome} {count:,}" for outcome, count in answers.most_common()))
    print(f"lost: {sum(count for outcome, count in answers.items() if outcome not in (current.name, other.name))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=3500)
    parser.add_argument("--model", default="slim")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        home = Home(Path(folder), "drawn")
        (home.folder / "landing").mkdir(parents=True)  # the command looks up the data set by this folder
        for number, run_id in enumerate(("first", "second")):
            publish_model(home, options.model, draw_log(options.items, number), run_id)
        run_load(home, options.connections, options.seconds)


if __name__ == "__main__":
    main()
