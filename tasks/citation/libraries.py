"""Add other libraries' rows, which benchmarks.libraries wrote, to a run's tables."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from oneclass.models.evaluation import metrics
from oneclass.tasks.citation.library_files import LibraryFile, LibraryRow, LibraryTable
from oneclass.tasks.citation.record import RunRecord
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.ranking import TargetRankMetrics, rank_targets_by_score, users_with_targets
from oneclass.tasks.evaluate.tables import RankedList, compare_lists
from oneclass.tasks.leaderboard import LeaderboardRow, add_weaknesses, group_by_protocol, mark_lists
from oneclass.tasks.protocols import PROTOCOLS, list_splits
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part

TOLERANCE = 1e-6  # relative, of a metric that is computed again from a stored fit
FIT = ["protocol", "model", "digest"]
ListName = tuple[str, str]  # model and score
KEY = ["protocol", "model", "score", "metric"]  # of recorded metrics, in their order
MAIN_TABLE = {
    "protocol": pl.String,
    "model": pl.String,
    "score": pl.String,
    "users": pl.Int64,
    "folds": pl.Int64,
    "difference": pl.Float64,
    "difference_error": pl.Float64,
    "p_value": pl.Float64,
    "metric": pl.String,
    "value": pl.Float64,
    "standard_error": pl.Float64,
}  # the columns of sql/publish.sql, main_table


def add_libraries(home: Home, record: RunRecord, files: Sequence[LibraryFile]) -> RunRecord:
    """Return the record with the rows of the files in its tables, all marks and p-values corrected over all lists.

    The values of the run's lists stay; their test users' values are computed again from the stored fits.

    Raises:
        InputError: a file is of another log, protocol, split or test users than the run, or two rows have one name.
        OneclassError: the store no longer has the run's split or fits, or their metrics are not the run's.
    """
    protocols = [file.table.protocol for file in files]
    if twice := {name for name in protocols if protocols.count(name) > 1}:
        raise InputError(f"--libraries: several files are of {', '.join(sorted(twice))}; give one file per protocol.")
    for file in files:
        record = _add_table(home, record, file)
    return replace(record, libraries=tuple(files))


def _add_table(home: Home, record: RunRecord, file: LibraryFile) -> RunRecord:
    table, protocol = file.table, file.table.protocol
    _check_splits(home, record, file)
    parts = [matrices.load_split(home, digest, parts=("test",)).parts["test"] for digest in table.splits]
    of_run = _rank_run_lists(home, record, protocol, parts)
    names = [name for name in PROTOCOLS[protocol].main_metrics if name in of_run[0].of_users]
    _check_rows(record, file, names, sum(len(users_with_targets(part)) for part in parts))
    of_libraries = [
        _make_list(row.name, row.score, {name: np.array(row.of_users[name]) for name in names})
        for row in table.library_rows
    ]
    lists = [replace(one, of_users={name: one.of_users[name] for name in names}) for one in [*of_run, *of_libraries]]
    rows = [(protocol, *row) for row in compare_lists(lists)]
    compared = pl.DataFrame(rows, schema=record.comparisons.schema, orient="row")
    others = record.comparisons.filter((pl.col("protocol") != protocol) | ~pl.col("metric").is_in(names))
    marked = {protocol: _mark_rows(group_by_protocol(record.leaderboard)[protocol], of_libraries, compared)}
    return replace(
        record,
        leaderboard=[row for rows in (group_by_protocol(record.leaderboard) | marked).values() for row in rows],
        metrics=_append_metrics(record.metrics, protocol, of_libraries),
        comparisons=pl.concat([others, compared]).sort(
            "protocol", "metric", "model", "score", "other_model", "other_score"
        ),
        trials=pl.concat([record.trials, *(_list_trials(record, table, row) for row in table.library_rows)]),
    )


def _check_splits(home: Home, record: RunRecord, file: LibraryFile) -> None:
    table, path = file.table, file.path
    if table.log != record.dataset.name:
        raise InputError(f"--libraries {path}: is of the data set {table.log}, the run of {record.dataset.name}.")
    digests = [record.splits[name] for name in list_splits(table.protocol, record.splits)]
    if not digests:
        raise InputError(
            f"--libraries {path}: is of {table.protocol}, and run {record.run_id} has {', '.join(record.protocols)}."
        )
    if table.splits != digests:
        raise InputError(
            f"--libraries {path}: its rows are of {_describe_splits(table.splits)} of {table.protocol} "
            f"({table.test_users:,} test users), and run {record.run_id} has {_describe_splits(digests)}. Fit the "
            f"libraries on the run's: python -m benchmarks.accuracy.libraries --home {home.root} --run {record.run_id} "
            f"--log {table.log} --protocol {table.protocol} --out FOLDER"
        )
    if gone := [digest for digest in digests if not matrices.has_split(home, digest)]:
        raise OneclassError(f"{home.matrices / gone[0]}: the run's split is no longer stored. Run it again.")


def _describe_splits(digests: Sequence[str]) -> str:
    return f"the {'split' if len(digests) == 1 else 'folds'} {', '.join(digests)}"


def _check_rows(record: RunRecord, file: LibraryFile, names: Sequence[str], users: int) -> None:
    """Refuse rows of other test users than the run's, without these metrics, or with a name that is taken.

    Raises:
        InputError: naming the row and what differs.
    """
    table, path = file.table, file.path
    if not table.library_rows:
        raise InputError(f"--libraries {path}: has no row of a library.")
    taken = set(record.metrics.filter(protocol=table.protocol)["model"])
    for row in table.library_rows:
        if row.name in taken:
            raise InputError(f"--libraries {path}: the table of {table.protocol} has a row {row.name} already.")
        taken.add(row.name)
        if lacking := [name for name in names if name not in row.of_users]:
            raise InputError(f"--libraries {path}: {row.name} lacks {', '.join(lacking)}.")
        for metric in names:
            if (count := len(row.of_users[metric])) != users:
                raise InputError(
                    f"--libraries {path}: {row.name} has {metric} of {count:,} test users, and run {record.run_id} has "
                    f"{users:,} with something to be found."
                )


def _rank_run_lists(home: Home, record: RunRecord, protocol: str, parts: Sequence[Part]) -> list[RankedList]:
    """Rank the test users' targets by every list of the run again, and check that the means are the run's.

    Args:
        parts: the test users of the protocol's split, or of each fold.
    """
    found, metric = [], PROTOCOLS[protocol].main_metric
    recorded = {tuple(row): value for *row, value in record.metrics.select(KEY + ["value"]).iter_rows()}
    splits = list_splits(protocol, record.splits)
    digests = {(split, model): digest for split, model, digest in record.fits.select(FIT).iter_rows()}
    for model in dict.fromkeys(row.model for row in group_by_protocol(record.leaderboard)[protocol]):
        fitted = [digests[split, model] for split in splits]
        ranked = [_rank_fit(home, model, digest, part) for digest, part in zip(fitted, parts, strict=True)]
        with_users = [ranks for ranks in ranked if ranks]
        for score in with_users[0]:
            ranks = TargetRankMetrics.concatenate([of_fold[score] for of_fold in with_users])
            one = _make_list(model, score, ranks.of_users)
            before, now = recorded[protocol, model, score, metric], one.means[metric].value
            if not np.isclose(now, before, rtol=TOLERANCE):
                raise OneclassError(
                    f"{model}/{score} of run {record.run_id}: its stored fit has {metric} {now:.6f}, and its table "
                    f"{before:.6f}. Another version of the program made the table: run it again."
                )
            found.append(one)
    return found


def _rank_fit(home: Home, model: str, digest: str, part: Part) -> dict[str, TargetRankMetrics]:
    if fits.find_fit(home, model, digest) is None:
        raise OneclassError(f"{home.models / model / digest}: the run's fit is no longer stored. Run it again.")
    return rank_targets_by_score(fits.load_fit(home, model, digest), part, on_progress=False)


def _make_list(model: str, score: str, of_users: dict[str, np.ndarray]) -> RankedList:
    return RankedList(model, score, of_users, metrics.average_over_users(of_users), {}, [], [])


def _append_metrics(recorded: pl.DataFrame, protocol: str, lists: list[RankedList]) -> pl.DataFrame:
    rows = [
        (protocol, one.model, one.score, metric, mean.value, mean.standard_error, mean.users)
        for one in lists
        for metric, mean in one.means.items()
    ]
    return pl.concat([recorded, pl.DataFrame(rows, schema=recorded.schema, orient="row")]).sort(KEY)


def _mark_rows(
    of_run: list[LeaderboardRow], of_libraries: list[RankedList], compared: pl.DataFrame
) -> list[LeaderboardRow]:
    """Return the rows of a protocol, the best first, marked and checked against trivial baselines as a run's are."""
    protocol, main = of_run[0].protocol, PROTOCOLS[of_run[0].protocol]
    cells = {(row.model, row.score): (row.users, row.cells) for row in of_run}
    for one in of_libraries:
        means = {metric: one.means[metric] for metric in main.main_metrics if metric in one.means}
        of_list = {metric: (mean.value, mean.standard_error) for metric, mean in means.items()}
        cells[one.model, one.score] = (means[main.main_metric].users, of_list)
    order = sorted(cells, key=lambda name: (-cells[name][1][main.main_metric][0], *name))
    tests = _index_comparisons(compared)
    rows = []
    for name in order:
        users, of_list = cells[name]
        difference, error, p_value = tests.get((main.main_metric, name, order[0]), (None, None, None))
        shared = (protocol, *name, users, of_run[0].folds, difference, error, p_value)
        rows += [(*shared, metric, *cell) for metric, cell in of_list.items()]
    marked = list(mark_lists(pl.DataFrame(rows, schema=MAIN_TABLE, orient="row")))
    popularity = next((name for name in order if name[0] == "popularity"), None)
    against_popularity = {
        (protocol, metric, *name): p_value
        for (metric, name, other), (_, _, p_value) in tests.items()
        if other == popularity
    }
    return add_weaknesses(marked, against_popularity)


def _index_comparisons(compared: pl.DataFrame) -> dict[tuple[str, ListName, ListName], tuple[Any, ...]]:
    """Return (difference, error, plain p-value) by metric, list and other list, in both directions."""
    found = {}
    for row in compared.iter_rows(named=True):
        one, other = (row["model"], row["score"]), (row["other_model"], row["other_score"])
        found[row["metric"], one, other] = (row["difference"], row["standard_error"], row["p_value"])
        found[row["metric"], other, one] = (-row["difference"], row["standard_error"], row["p_value"])
    return found


def _list_trials(record: RunRecord, table: LibraryTable, row: LibraryRow) -> pl.DataFrame:
    """List a row's trials in the columns of `operations.search_trials`, without a run."""
    of_row = {"run_id": None, "model": row.name, "edges": table.trial_edges}
    trials = [of_row | trial | {"settings": json.dumps(trial["settings"])} for trial in row.of_trials]
    return pl.DataFrame(trials, schema=record.trials.schema)
