"""What published lists found of the likes that came after them, against a loop over users and places."""

import json
import math
from datetime import datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.diagnose import record_list_hits
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

MADE = datetime(2026, 11, 20, 3)
K, ITEMS, USERS = 4, 12, 25
COLUMNS = (
    "run_id, length, users, likes, hits, recall, recall_error, ndcg, ndcg_error, popularity_recall, popularity_ndcg"
)


def draw_edges(seed: int, *, seen: bool) -> tuple[list[tuple], dict[int, list[int]]]:
    """Edges as (user, item, is new, is taken later), of some users none of them new, and the lists of all but three."""
    random = np.random.default_rng(seed)
    edges, lists = [], {}
    for user in range(USERS):
        liked = random.permutation(ITEMS)[: random.integers(2, 8)].tolist()
        fresh = int(random.integers(0, 3))
        edges += [(user, item, at < fresh, at < fresh or random.random() < 0.2) for at, item in enumerate(liked)]
        known = liked[fresh:]
        if user > 2:
            lists[user] = random.permutation([item for item in range(ITEMS) if seen or item not in known])[:K].tolist()
    return edges, lists


def count_hits_naively(edges: list[tuple], lists: dict[int, list[int]], *, seen: bool) -> tuple:
    likes = [sum(item == liked and not fresh for _, liked, fresh, _ in edges) for item in range(ITEMS)]
    figures, targets, hits = [], 0, 0
    for user, shown in lists.items():
        new = {item for one, item, fresh, taken in edges if one == user and (taken if seen else fresh)}
        known = {item for one, item, fresh, _ in edges if one == user and not fresh and not seen}
        popular = [
            item for item in sorted(range(ITEMS), key=lambda n: (-likes[n], n)) if likes[item] and item not in known
        ]
        if new:
            most = min(K, len(new))
            ideal = sum(1 / math.log2(place + 2) for place in range(most))
            row = []
            for listed in (shown, popular[:K]):
                row += [len(new & set(listed)) / most]
                row += [sum(1 / math.log2(place + 2) for place, item in enumerate(listed) if item in new) / ideal]
            figures.append(row)
            targets, hits = targets + len(new), hits + len(new & set(shown))
    values = np.array(figures)
    means, errors = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
    return (K, len(values), targets, hits, means[0], errors[0], means[1], errors[1], means[2], means[3])


def fill_warehouse(home: Home, edges: list[tuple], lists: dict[int, list[int]], *, until: bool, seen: bool) -> None:
    """A warehouse in which `made` published the lists and `tonight` runs; new are later days, or the second log's."""
    settings = json.dumps({"seen_items": "include" if seen else "exclude"} | ({"until": "2026-11-19"} if until else {}))
    with warehouse.open_warehouse(home) as connection:
        for number, came in ((1, MADE + timedelta(minutes=1)), (2, MADE + timedelta(hours=9))):  # the first by `made`
            connection.execute(
                "insert into operations.log_files (file_id, path, sha256, bytes, events, rejects, ingested_at) "
                "values (?, ?, ?, 1, 1, 0, ?)",
                [number, f"{number}.csv", str(number), came],
            )
        for run, began in (
            ("earlier", MADE - timedelta(days=1)),
            ("made", MADE),
            ("tonight", MADE + timedelta(days=1)),
        ):
            connection.execute(
                "insert into operations.runs (run_id, flow, dataset, started_at, state, settings, code_version) "
                "values (?, 'nightly', 'small', ?, 'completed', ?, '1')",
                [run, began, settings],
            )
        for run, promoted in (("earlier", True), ("made", True), ("tonight", False)):
            connection.execute(
                "insert into operations.promotions (run_id, decided_at, challenger, margin, promoted, reason) "
                "values (?, ?, 'wmf/score', 1, ?, '')",
                [run, MADE + timedelta(minutes=5), promoted],
            )
        for side, count in (("user", USERS), ("item", ITEMS)):
            for number in range(count):
                connection.execute(
                    f"insert into indexed.{side}s ({side}_index, {side}_id) values (?, ?)",
                    [number, f"{side[0]}{number}"],
                )
        for user, item, fresh, taken in edges:
            last = MADE.replace(hour=0) + timedelta(days=0 if taken else -1)
            first = MADE - timedelta(days=900) if not until else last if fresh else last - timedelta(days=9)
            connection.execute(
                "insert into indexed.interactions values (?, ?, 1, ?, ?, ?, 1, null)",
                [user, item, first, last, 1 if until else 1 + fresh],
            )
            connection.execute(
                "insert into raw.events values (?, ?, 1, ?, ?, 1, null)",
                [f"u{user}", f"i{item}", last, 1 if until else 1 + taken],
            )
        for user, shown in lists.items():
            for rank, item in enumerate(shown, 1):
                connection.execute(
                    "insert into published.recommendations (user_id, item_id, rank, score) values (?, ?, ?, 0)",
                    [f"u{user}", f"i{item}", rank],
                )


@pytest.mark.parametrize("seen", [False, True], ids=["new items alone", "seen items too"])
@pytest.mark.parametrize("until", [False, True], ids=["logs that came later", "events of later days"])
def test_hits_are_those_of_likes_that_came_after_the_lists(tmp_path, until, seen):
    edges, lists = draw_edges(seed=3 + until, seen=seen)
    home = Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))
    fill_warehouse(home, edges, lists, until=until, seen=seen)
    with warehouse.open_warehouse(home) as connection:
        for _ in range(2):  # the second record replaces the first
            record_list_hits(connection, "tonight")
        [(run, *found)] = connection.execute(f"select {COLUMNS} from diagnostics.list_hits").fetchall()
    assert run == "made" and found == pytest.approx(count_hits_naively(edges, lists, seen=seen)) and found[3] > 0


def test_lists_of_which_no_user_came_back_have_no_row(tmp_path):
    edges, lists = draw_edges(seed=3, seen=False)
    home = Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))
    edges = [(user, item, False, False) for user, item, *_ in edges]
    fill_warehouse(home, edges, lists, until=False, seen=False)
    with warehouse.open_warehouse(home) as connection:
        record_list_hits(connection, "tonight")
        assert connection.execute("from diagnostics.list_hits").fetchall() == []
