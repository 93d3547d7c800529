"""Load what a run recorded of itself, as far as a reader needs it to judge and repeat the run's table."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from oneclass.models.registry import MODELS
from oneclass.tasks.citation.library_files import LibraryFile
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.leaderboard import LeaderboardRow, load_leaderboard
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import checksums, fits, matrices, warehouse
from oneclass.tasks.stores.home import Home

FIT = ("model", "digest")
REPEATED = ("seed", "limits", "sources")  # settings in which runs of the same table may differ; files are compared


@dataclass(frozen=True)
class RunRecord:
    """One evaluated run.

    Attributes:
        settings: all settings that decide the run's numbers, from `operations.runs`.
        leaderboard: the rows of the table, with the marks of corrected tests.
        metrics, comparisons: all metrics and paired comparisons.
        machine: the row of `operations.run_machines`, with `energy_joules`; None if an earlier version ran.
        fits: `protocol` (a fold by its name), `model`, `digest`, `seconds`, `peak_bytes` and `cpu_seconds`, which is
            null for a fit by several processes or one that is no longer stored.
        model_settings: the rows of `operations.model_settings`, settings decoded, by model.
        trials: the rows of `operations.search_trials` of the searches, of this run or an earlier one, by which the
            settings of its models were chosen.
        libraries: files whose rows `tasks.citation.libraries` added to the tables.
        splits: digest of the matrices by protocol or fold.
        files: `path`, `sha256`, `bytes`, `events` of each log file that the warehouse had when the run ended.
        steps: the rows of `operations.funnel`, from the lines of all logs to the curated edges.
        packages: version of each installed package by its name; None if an earlier version ran.
        effective: by digest of a fit, its settings with those that were derived from its data; None if it is no longer
            stored.
        seeds: `run_id`, `seed`, `protocol`, `model`, `score`, `metric` and `value` of the main metrics of this run and
            of all that differ from it in the seed alone, the first run first.
    """

    run_id: str
    dataset: Dataset
    code_version: str
    machine: dict[str, Any] | None
    settings: dict[str, Any]
    leaderboard: list[LeaderboardRow]
    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    fits: pl.DataFrame
    model_settings: dict[str, dict[str, Any]]
    trials: pl.DataFrame
    splits: dict[str, str]
    files: pl.DataFrame
    steps: pl.DataFrame
    packages: dict[str, str] | None
    effective: dict[str, dict[str, Any] | None]
    seeds: pl.DataFrame
    libraries: tuple[LibraryFile, ...] = ()

    @property
    def models(self) -> list[str]:
        """The models of the table, in the order in which they were fitted."""
        of_table = set(self.metrics["model"])
        return [model for model in self.fits["model"].unique(maintain_order=True) if model in of_table]

    @property
    def metric_names(self) -> list[str]:
        """All metrics of the run."""
        return self.metrics["metric"].unique().sort().to_list()

    @property
    def protocols(self) -> list[str]:
        """The protocols of the table."""
        return list(dict.fromkeys(row.protocol for row in self.leaderboard))

    @property
    def interactions(self) -> dict[str, int]:
        """Users, items and edges of the curated table; empty if the run did not record them."""
        if self.steps.is_empty():
            return {}
        last = self.steps.row(-1, named=True)
        return {"users": last["users"], "items": last["items"], "edges": last["remaining"]}

    @property
    def fit_cpu_seconds(self) -> float | None:
        """The processor time of all fits; None if that of one is unknown."""
        known = self.fits.drop_nulls("cpu_seconds")
        return float(known["cpu_seconds"].sum()) if known.height == self.fits.height else None

    def effective_settings(self, model: str) -> dict[str, Any]:
        """Return the settings that every fit of a model was given: the searched ones, else those of the run."""
        return self.model_settings.get(model, {}).get("settings") or self.settings["models"][model]

    def describe_search(self, model: str) -> dict[str, Any]:
        """Return where a model's settings come from: origin, searched ranges, trials and what they found."""
        chosen = self.model_settings.get(model)
        if chosen is None:
            return {"origin": "none to search", "trials": 0, "space": {}}
        space = {name: repr(range_) for name, range_ in MODELS[model].Settings.search_space.items()}
        names = ("origin", "reason", "protocol", "metric", "trials", "seconds", "at_start", "reached", "standard_error")
        return {**{name: chosen[name] for name in names}, "space": space}


def load_run(home: Home, dataset: Dataset, run_id: str | None) -> RunRecord:
    """Load an evaluated run, by default the latest.

    Raises:
        InputError: the data set has no such run; the error lists those that there are.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        # one row per evaluated run, the last first
        runs = warehouse.query(
            connection,
            "select run_id, settings, code_version, ended_at from operations.evaluated_runs order by place desc",
        )
        chosen = runs if run_id is None else runs.filter(run_id=run_id)
        if chosen.is_empty():
            known = ", ".join(runs["run_id"].head(5)) or "none"
            raise InputError(f"--run {run_id or ''}: {dataset.name} has no such evaluated run. The latest: {known}.")
        run, settings, code_version, ended_at = chosen.row(0)
        # one row per protocol or fold and model
        fitted = warehouse.query(
            connection,
            "select protocol, model, digest, seconds, peak_bytes from operations.model_fits where run_id = $run_id "
            "order by rowid",
            run_id=run,
        )
        return RunRecord(
            run,
            dataset,
            code_version,
            _load_machine(connection, run),
            json.loads(settings),
            load_leaderboard(connection, run),
            _load_metrics(connection, run),
            _load_comparisons(connection, run),
            _add_cpu_seconds(home, fitted),
            _load_model_settings(connection, run),
            warehouse.select(connection, "tune/trials", run_id=run),
            _load_splits(home, fitted),
            _load_files(connection, ended_at),
            warehouse.select(connection, "report/funnel", run_id=run),
            _load_packages(connection, run),
            {digest: _load_effective(home, model, digest) for model, digest in fitted.select(FIT).iter_rows()},
            _load_seeds(connection, runs, run),
        )


def load_split_hashes(home: Home, digest: str) -> dict[str, str]:
    """Return the sha256 of each stored array of a split; empty if the store has it no longer."""
    if not matrices.has_split(home, digest):
        return {}
    return checksums.load_file_hashes(home.matrices / digest, matrices.RECORD_FILE)


def _load_machine(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, Any] | None:
    # one row at most
    text = "select * exclude (run_id) from operations.run_machines where run_id = $run_id"
    rows = warehouse.query(connection, text, run_id=run_id).to_dicts()
    return rows[0] if rows else None


def _add_cpu_seconds(home: Home, fitted: pl.DataFrame) -> pl.DataFrame:
    seconds = [fits.load_cpu_seconds(home, *fit) for fit in fitted.select(FIT).iter_rows()]
    return fitted.with_columns(cpu_seconds=pl.Series(seconds, dtype=pl.Float64))


def _load_metrics(connection: duckdb.DuckDBPyConnection, run_id: str) -> pl.DataFrame:
    columns = "protocol, model, score, metric, value, standard_error, users"
    # one row per protocol, model, score and metric
    text = (
        f"select {columns} from evaluation.metrics where run_id = $run_id "
        f"union all select {columns} from evaluation.beyond_accuracy where run_id = $run_id "
        "order by protocol, model, score, metric"
    )
    return warehouse.query(connection, text, run_id=run_id)


def _load_comparisons(connection: duckdb.DuckDBPyConnection, run_id: str) -> pl.DataFrame:
    # one row per protocol, metric and pair of ranked lists
    text = (
        "select * exclude (run_id) from evaluation.comparisons where run_id = $run_id "
        "order by protocol, metric, model, score, other_model, other_score"
    )
    return warehouse.query(connection, text, run_id=run_id)


def _load_files(connection: duckdb.DuckDBPyConnection, until: datetime) -> pl.DataFrame:
    # one row per log file
    text = "select path, sha256, bytes, events from operations.log_files where ingested_at <= $until order by path"
    return warehouse.query(connection, text, until=until)


def _load_model_settings(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, dict[str, Any]]:
    # one row per model that has settings to search
    rows = warehouse.query(
        connection, "select * from operations.model_settings where run_id = $run_id order by model", run_id=run_id
    )
    return {row["model"]: row | {"settings": json.loads(row["settings"])} for row in rows.iter_rows(named=True)}


def _load_splits(home: Home, fitted: pl.DataFrame) -> dict[str, str]:
    found = {}
    for protocol, model, digest in fitted.select("protocol", "model", "digest").iter_rows():
        if protocol not in found and (of_fit := fits.find_matrices_digest(home, model, digest)) is not None:
            found[protocol] = of_fit
    return found


def _load_packages(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, str] | None:
    # one row at most
    text = "select packages from operations.run_packages where run_id = $run_id"
    rows = warehouse.query(connection, text, run_id=run_id)
    return None if rows.is_empty() else json.loads(rows.item())


def _load_effective(home: Home, model: str, digest: str) -> dict[str, Any] | None:
    file = fits.fit_folder(home, model, digest) / "settings.json"
    return json.loads(file.read_text(encoding="utf-8"))["resolved"] if file.is_file() else None


def _load_seeds(connection: duckdb.DuckDBPyConnection, runs: pl.DataFrame, run_id: str) -> pl.DataFrame:
    """Load the main metrics of a run and of those with its settings, code and log files, but for the seed."""

    def describe_settings(run: dict[str, Any]) -> str:
        settings = {name: of for name, of in json.loads(run["settings"]).items() if name not in REPEATED}
        return json.dumps([settings, run["code_version"]], sort_keys=True)

    def list_hashes(run: dict[str, Any]) -> list[str]:
        return _load_files(connection, run["ended_at"])["sha256"].sort().to_list()

    chosen = runs.row(by_predicate=pl.col("run_id") == run_id, named=True)
    settings, hashes = describe_settings(chosen), list_hashes(chosen)
    seeds = {
        run["run_id"]: json.loads(run["settings"])["seed"]
        for run in runs.reverse().iter_rows(named=True)
        if describe_settings(run) == settings and list_hashes(run) == hashes
    }
    columns = "run_id, protocol, model, score, metric, value"
    # one row per run, protocol, model, score and metric
    text = f"select {columns} from evaluation.metrics where list_contains($run_ids, run_id)"
    found = warehouse.query(connection, text, run_ids=list(seeds))
    of_runs = pl.DataFrame({"run_id": list(seeds), "seed": list(seeds.values()), "order": range(len(seeds))})
    main = [(name, metric) for name, protocol in PROTOCOLS.items() for metric in protocol.main_metrics]
    return (
        of_runs.join(found, on="run_id")
        .join(pl.DataFrame(main, schema=["protocol", "metric"], orient="row"), on=["protocol", "metric"])
        .sort("order", "protocol", "model", "score", "metric")
        .select("run_id", "seed", "protocol", "model", "score", "metric", "value")
    )
