"""A warehouse with rows in every table that the report looks at: two runs of three models, made up but consistent."""

import json
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path

import numpy as np

from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

RUN, BEFORE = "the-run", "the-run-before"
BEGAN = datetime(2026, 11, 20, 3, 0)
LISTS = [
    ("popularity", "score"),
    ("mrf_dense", "score"),
    ("random_graph", "like"),
    ("random_graph", "popularity_x_odds"),
]
MAIN = {
    "strong_generalization": ("ndcg@100", "recall@20", "recall@50", "mean_rank", "validation_ndcg@100"),
    "leave_one_out": ("mean_rank", "median_rank", "ndcg@100"),
}
BINS = [(1, 1), (2, 3), (4, 7), (8, 15), (16, 31)]
USERS = 40
SEEN_ITEMS_REASON = "2.1 % of 523 pairs are repeats"
WORSE = json.dumps(
    [{"protocol": "leave_one_out", "metric": "mean_rank", "model": "mrf_dense", "value": 0.51234, "popularity": 0.62}]
)


def fill_home(folder: Path, *statements: str) -> Home:
    """Return a home whose warehouse has every row, the same every time, and then these statements executed."""
    home, random = Home(folder, "small", Limits(threads=1, memory=1 << 30)), np.random.default_rng(5)
    made = (_log_rows(random), _run_rows(), _evaluation_rows(random), _like_rows())
    published = _published_rows(made[0]["indexed.interactions"])
    with warehouse.open_warehouse(home) as connection:
        for table, rows in [pair for tables in (*made, published) for pair in tables.items()]:
            for row in rows:
                connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", row)
        for statement in statements:
            connection.execute(statement)
    return home


def _log_rows(random: np.random.Generator) -> dict[str, list[tuple]]:
    share = np.arange(1, 31) ** -0.8 / (np.arange(1, 31) ** -0.8).sum()
    edges = [
        (user, int(item), 1, BEGAN, BEGAN, 1, 1, None)
        for user in range(60)
        for item in sorted(random.choice(30, size=int(random.integers(1, 12)), replace=False, p=share))
    ]
    degrees = []
    for side, at in (("user", 0), ("item", 1)):
        each = np.unique([edge[at] for edge in edges], return_counts=True)[1]
        degrees += [(side, int(d), int(n)) for d, n in zip(*np.unique(each, return_counts=True), strict=True)]
    laws = [
        ("user", "power_law", 0.4, None, 1, 30, -150.25, 302.5, 0.2, 0.01),
        ("user", "power_law_cutoff", 0.1, 9.5, 1, 30, -140.5, 285.0, 0.05, 0.62),
        ("user", "log_normal", 1.5, 0.7, 1, 30, -142.5, 289.0, 0.07, 0.31),
        ("user", "exponential", None, 6.25, 1, 30, -141.0, 284.0, 0.06, 0.4),
    ]
    return {
        "operations.log_files": [
            (1, "/logs/<first>.csv", "a" * 64, 1_234_567, 900, 0, BEGAN - timedelta(days=1), None, None),
            (2, "/logs/second.csv", "b" * 64, 7_000, 12_345, 3, BEGAN + timedelta(minutes=1), "c" * 64, True),
        ],
        "raw.rejects": [(2, line, "x", "value: no number") for line in (4, 9, 11)],
        "operations.arrivals": [
            (RUN, BEGAN, "second.csv", "/logs/second.csv", "new", 2, "b" * 64, 12_345, 3, 0, 0, None),
            (RUN, BEGAN, "orders.csv", "/logs/orders.csv", "set aside", None, None, 0, 0, 0, 0, "is <empty>\n\nmore"),
        ],
        "operations.funnel": [
            (RUN, 0, "lines", "lines, or items of lines that list several", 0, 13_248, None, None),
            (RUN, 1, "lines", "value: no number", 3, 13_245, None, None),
            (RUN, 2, "events", "value below binarize.threshold = 4", 13_245 - len(edges), len(edges), None, None),
            (RUN, 3, "likes", "repeat a like of the same user and item", 0, len(edges), 60, 30),
        ],
        "indexed.users": [(user, f"u{user}") for user in range(60)],
        "indexed.items": [(item, f"i{item}") for item in range(30)],
        "indexed.interactions": edges,
        "diagnostics.degrees": degrees,
        "diagnostics.power_law_fits": laws,
    }


def _run_rows() -> dict[str, list[tuple]]:
    settings = {"seed": 0, "split": {"scheme": "hashed"}, "mrf_dense": {"l2": 6.0}, "seen_items": "exclude"}
    rules = [
        ("ingest", "raw.events", "no <nulls>", "error"),
        ("evaluate", "evaluation.metrics", "plausible", "warning"),
    ]
    runs, results, fits = [], [], []
    for run, began, changed in ((BEFORE, BEGAN - timedelta(days=1), {"seed": 7}), (RUN, BEGAN, {})):
        text = json.dumps(settings | changed)
        runs.append((run, "backfill", "small", began, began + timedelta(seconds=40), "completed", text, f"0.1.0+{run}"))
        results += [(run, *rule, rule[1] == "raw.events" or run == BEFORE, "2 rows", WORSE) for rule in rules]
        fits += [
            (run, protocol, model, "d", 1.5 * at, 10**8 + at, 12_345 * at)
            for protocol in MAIN
            for at, model in enumerate(dict.fromkeys(model for model, _ in LISTS))
        ]
    sizes = (31, 17, 523)
    settled = [
        (RUN, "mrf_dense", "search", "l2 74.2", "strong_generalization", BEGAN.date(), "ndcg@100", 12, 4.5, 0.41, 0.432,
         0.011, *sizes, "abc", json.dumps({"l2": 74.2})),
        (BEFORE, "mrf_dense", "search", "l2 55.1", "strong_generalization", BEGAN.date(), "ndcg@100", 12, 4.5, 0.41,
         0.43, 0.011, *sizes, "abc", json.dumps({"l2": 55.1})),
        (RUN, "random_graph", "default", "31 validation users are too few to choose by", *[None] * 12, "{}"),
    ]  # fmt: skip
    return {
        "operations.runs": runs,
        "operations.stage_results": [("split", "d", "d", json.dumps({"seen_items": {"reason": SEEN_ITEMS_REASON}}))],
        "operations.contract_results": results,
        "operations.model_settings": settled,
        "operations.model_fits": fits,
    }


def _evaluation_rows(random: np.random.Generator) -> dict[str, list[tuple]]:
    metrics, comparisons, beyond = [], [], []
    for protocol, names in MAIN.items():
        for at, (model, score) in enumerate(LISTS):
            for metric in names:
                value, error = 0.5 + 0.1 * at + 0.01 * random.random(), None if metric == "median_rank" else 0.0123
                metrics.append((RUN, protocol, model, score, metric, value, error, USERS))
                if model != "mrf_dense":  # new in the run
                    metrics.append((BEFORE, protocol, model, score, metric, value - 0.02 * at, error, USERS))
            metrics.append((BEFORE, protocol, "hpf", "score", names[0], 0.4, 0.01, USERS))  # gone since
            for metric in ("coverage@20", "novelty@20"):
                beyond.append((RUN, protocol, model, score, metric, random.random(), None, USERS))
        comparisons += [
            (RUN, protocol, names[0], *one, *other, -0.1, 0.02, 0.5 if one == LISTS[2] else 0.0001, USERS, None)
            for one, other in combinations(LISTS, 2)
        ]
    parts = [
        ("activity", "low", 2, 5, 30, 40), ("activity", "high", 6, 90, 10, 80), ("popularity", "high", 1, 50, 40, 120),
    ]  # fmt: skip
    strata = [
        (RUN, protocol, *ranked, metric, *part[:4], 0.3 + 0.1 * random.random(), 0.02, *part[4:])
        for protocol in MAIN for ranked in LISTS for metric in ("ndcg@100", "mean_rank") for part in reversed(parts)
    ]  # fmt: skip
    by_degree = [
        (RUN, *ranked, side, low, high, 20, 0.6 + 0.05 * at, *np.linspace(0.1, 0.9, 5).tolist())
        for ranked in LISTS for side in ("user", "item") for at, (low, high) in enumerate(BINS)
    ]  # fmt: skip
    return {
        "evaluation.metrics": metrics,
        "evaluation.comparisons": comparisons,
        "evaluation.beyond_accuracy": beyond,
        "evaluation.strata": strata,
        "evaluation.ranks_by_degree": by_degree,
    }


def _like_rows() -> dict[str, list[tuple]]:
    calibration = [
        (RUN, "random_graph", reference, at / 10, at / 10 + 0.1, 100, at / 10 + 0.05, min(1.0, at / 10 + shift), 0.03)
        for reference, shift in (("considered", 0.15), ("sampled_negatives", 0.06)) for at in range(10)
    ]  # fmt: skip
    considered = [
        (RUN, "leave_one_out", model, f"considered_{metric}", value, 0.01, 400, 312)
        for model in ("random_graph", "popularity")
        for metric, value in (("auc", 0.71), ("log_loss", 0.6125), ("calibration_error", 0.0934))
    ]
    return {"evaluation.calibration": calibration, "evaluation.considered": considered}


def _published_rows(edges: list[tuple]) -> dict[str, list[tuple]]:
    """Two decisions, what stands now, and the volume of two nights."""
    night, before = BEGAN.date(), BEGAN.date() - timedelta(days=1)
    recommended = [
        (f"u{user}", f"i{at}", rank, 1 / rank, 0.5, 0.1 + user % 7 / 100, False, None, None, None)
        for user in dict.fromkeys(edge[0] for edge in edges)
        for rank, at in enumerate(sorted(set(range(30)) - {edge[1] for edge in edges if edge[0] == user})[:8], 1)
    ]
    return {
        "operations.promotions": [
            (BEFORE, BEGAN - timedelta(hours=23), None, "popularity/score", None, None, None, 1.0, True, "the first"),
            (RUN, BEGAN + timedelta(minutes=1), "popularity/score", "random_graph/popularity_x_odds", "ndcg@100", 0.1,
             0.02, 1.0, True, "ndcg@100 +0.1000 ± 0.0200 against popularity/score, over the same validation users"),
        ],
        "operations.nights": [
            (BEFORE, before, "events", 900.0, True, None, None, 0, None, None),
            (RUN, night, "events", 12_345.0, True, 1180.0, 0.1, 14, 700.0, None),
        ],
        "diagnostics.list_hits": [
            (BEFORE, BEGAN - timedelta(days=1), 8, 30, 44, 12, 0.25, 0.02, 0.21, 0.015, 0.11, 0.1, 0.012),
            ("older", BEGAN - timedelta(days=2), 8, 20, 24, 2, 0.05, 0.02, 0.04, 0.015, 0.11, 0.1, 0.012),
        ],
        "published.recommendations": recommended,
    }  # fmt: skip
