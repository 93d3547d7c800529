"""Publish under load and count requests that are lost, answered from two publications, or slow.

    python -m benchmarks.reliability.serve_publications
    python -m benchmarks.reliability.serve_publications --rate 500 --seconds 60 --publications 24 --workers 2

Publications of a model, each fitted on another drawn log (`benchmarks.speed.recommend`), replace one another at equal
intervals while `python -m flows.serve` answers on the loopback. Requests are sent at fixed times, whether or not
earlier ones are answered, half of them for a user and half for a history of three items; a latency is from the time at
which the request was due, so waiting counts. An answer is mixed if its items are not those that Python recommends from
the publication that the answer names.
"""

import argparse
import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs

import numpy as np

from benchmarks.speed.recommend import draw_log, publish_model
from benchmarks.speed.serve import draw_paths, start_server
from oneclass.flows import published
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home

CONNECTIONS, PATHS = 16, 200
Answer = tuple[str, str, list[str]]  # path, publication and items


class Sender(threading.Thread):
    """One connection, which sends every request whose number is its own modulo CONNECTIONS at its time.

    Attributes:
        seconds, late, answers: of each request: latency from its time, the delay of sending it, and the answer or the
            error.
    """

    def __init__(self, number: int, port: int, paths: list[str], rate: float, start: float, requests: int) -> None:
        super().__init__()
        self.numbers, self.port, self.paths = range(number, requests, CONNECTIONS), port, paths
        self.rate, self.begin = rate, start
        self.seconds: list[float] = []
        self.late: list[float] = []
        self.answers: list[Answer | str] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        for number in self.numbers:
            due, path = self.begin + number / self.rate, self.paths[number % len(self.paths)]
            time.sleep(max(0.0, due - time.perf_counter()))
            self.late.append(time.perf_counter() - due)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(type(error).__name__)
                connection.close()
            else:
                self.answers.append(self._parse_answer(path, answer.status, body))
            self.seconds.append(time.perf_counter() - due)
        connection.close()

    @staticmethod
    def _parse_answer(path: str, status: int, body: bytes) -> Answer | str:
        if status != 200:
            return f"status {status}"
        answer = json.loads(body)
        return path, answer["publication"], [item["item_id"] for item in answer["items"]]


def recommend_paths(home: Home, folder: Path, paths: list[str]) -> dict[str, list[str]]:
    """Recommend the items of each path from a publication, without the server."""
    publications.switch_link(home, folder)
    shop = published.load(home.root, home.dataset)
    lists = {}
    for path in dict.fromkeys(paths):
        query = parse_qs(path.partition("?")[2])
        items = shop.recommend_for(query["user"][0]) if "user" in query else shop.recommend(query["item"])
        lists[path] = items["item_id"].to_list()
    return lists


def run_load(home: Home, folders: list[Path], rate: float, seconds: float, workers: int) -> None:
    """Publish one folder after the other under requests, and print the outcome."""
    paths = draw_paths(home)[:PATHS]
    expected = {folder.name: recommend_paths(home, folder, paths) for folder in folders}
    publications.switch_link(home, folders[0])
    with start_server(home, workers) as (_, port):
        start = time.perf_counter() + 0.5
        senders = [Sender(number, port, paths, rate, start, int(rate * seconds)) for number in range(CONNECTIONS)]
        for sender in senders:
            sender.start()
        for number, folder in enumerate(folders[1:], 1):
            time.sleep(max(0.0, start + number * seconds / len(folders) - time.perf_counter()))
            publications.switch_link(home, folder)
        for sender in senders:
            sender.join()
    print_report([answer for sender in senders for answer in sender.answers], senders, expected, seconds)


def print_report(
    answers: list[Answer | str],
    senders: list[Sender],
    expected: dict[str, dict[str, list[str]]],
    seconds: float,
) -> None:
    """Print the latencies, and the requests that were lost or mixed."""
    latencies, late = (
        1e3 * np.array([value for sender in senders for value in getattr(sender, name)]) for name in ("seconds", "late")
    )
    errors = Counter(answer for answer in answers if isinstance(answer, str))
    answered = [answer for answer in answers if not isinstance(answer, str)]
    mixed = sum(items != expected[publication][path] for path, publication, items in answered)
    p50, p99, p999 = np.percentile(latencies, [50, 99, 99.9])
    causes = f" {dict(errors)}" if errors else ""
    named = len({publication for _, publication, _ in answered})
    print(
        f"{len(answers):,} requests in {seconds:.0f} s; lost {errors.total()}{causes}, mixed {mixed}; "
        f"answered by {named} publications"
    )
    print(
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms, longest {latencies.max():.0f} ms; "
        f"of these the client was late by p99 {np.percentile(late, 99):.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--publications", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--items", type=int, default=3500)
    parser.add_argument("--model", default="mrf_dense")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        home = Home(Path(folder), "drawn")
        (home.folder / "landing").mkdir(parents=True)  # the command looks up the data set by this folder
        folders = []
        for number in range(options.publications):
            publish_model(home, options.model, draw_log(options.items, number), f"run-{number:02}")
            folders.append(home.published.resolve())
        run_load(home, folders, options.rate, options.seconds, options.workers)


if __name__ == "__main__":
    main()
