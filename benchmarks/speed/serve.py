"""The server under load: requests a second, p50 and p99, with publications swung while it answers.

python -m benchmarks.speed.serve
python -m benchmarks.speed.serve --items 41000 --model slim --connections 8 --seconds 20
python -m benchmarks.speed.serve --home var --dataset ml-1m

The server is `python -m flows.serve` in a process of its own, on a log drawn here (as in `benchmarks.speed.recommend`)
that has two publications, or on what a home has published. Each connection is kept open and sends the next request once
it has its answer, half of them for a user and half for a history of three. At a half of the time the link is swung to
the other publication, at three quarters back. Every answer is read; one that is not 200, or does not come, is lost. The
client takes a part of the machine too, so the server alone answers more. The processor time of an answer is the
server's in the first half of the time, when it loads no publication.
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
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.speed.recommend import drawn, publish
from oneclass.flows import published
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home


class Client(threading.Thread):
    """One connection; `seconds` and `answers` (publication or what went wrong) of its requests."""

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
                word = json.loads(body)["publication"] if answer.status == 200 else f"status {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                word = type(error).__name__
                connection.close()
            self.seconds.append(time.perf_counter() - began)
            self.answers[word] += 1
            number += 1


def asked(home: Home) -> list[str]:
    """Paths of requests, for users and for histories in turn."""
    shop = published.load(home.root, home.dataset)
    users, items = shop.users["user_id"].to_list(), shop.items["item_id"].to_list()
    generator = np.random.default_rng(0)
    paths = []
    for user in generator.choice(len(users), 500):
        paths.append(f"/recommend?user={users[user]}")
        paths.append("/recommend?" + "&".join(f"item={items[item]}" for item in generator.choice(len(items), 3)))
    return paths


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loaded(home: Home, connections: int, seconds: float) -> None:
    command = [sys.executable, "-m", "flows.serve", "--dataset", home.dataset, "--home", str(home.root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        port = int(re.search(r":(\d+)/docs", server.stdout.readline())[1])
        paths, until = asked(home), time.monotonic() + seconds
        clients = [Client(port, paths[place::connections], until) for place in range(connections)]
        before = processor_seconds(server.pid)
        for client in clients:
            client.start()
        names = [
            home.published.resolve(),
            *(one for one in home.publications.iterdir() if one != home.published.resolve()),
        ]
        for share, folder in ((0.5, names[-1]), (0.75, names[0])):
            time.sleep(max(0.0, until - (1 - share) * seconds - time.monotonic()))
            if share == 0.5:
                answered, used = sum(len(client.seconds) for client in clients), processor_seconds(server.pid) - before
            publications.switch_link(home, folder)
        for client in clients:
            client.join()
        server.terminate()
    took = np.array([one for client in clients for one in client.seconds])
    answers = sum((client.answers for client in clients), Counter())
    p50, p99 = np.percentile(took, [50, 99]) * 1e3
    print(f"{connections} connections, {seconds:.0f} s: {len(took) / seconds:,.0f} requests a second, p50 {p50:.2f} "
          f"ms, p99 {p99:.2f} ms, longest {took.max() * 1e3:.0f} ms")  # fmt: skip
    print(f"processor time of an answer: {used / answered * 1e3:.2f} ms")
    print("answered by: " + ", ".join(f"{word} {count:,}" for word, count in answers.most_common()))
    lost = sum(count for word, count in answers.items() if word not in {folder.name for folder in names})
    print(f"lost: {lost}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.serve", description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=3500)
    parser.add_argument("--model", default="slim")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--dataset")
    given = parser.parse_args()
    if given.home:
        loaded(Home(given.home, given.dataset), given.connections, given.seconds)
        return
    with TemporaryDirectory() as folder:
        home = Home(Path(folder), "drawn")
        (home.folder / "landing").mkdir(parents=True)  # by which the command knows the data set
        for number, run_id in enumerate(("first", "second")):
            publish(home, given.model, drawn(given.items, number), run_id)
        loaded(home, given.connections, given.seconds)


if __name__ == "__main__":
    main()
