"""The parameters of flows and commands: stated once, they are flags, what Prefect shows, and a command again."""

import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from oneclass.flows import cli, commands
from oneclass.flows.parameters import (
    BackfillParameters,
    NightlyRetrainParameters,
    RunParameters,
    TuneParameters,
)
from oneclass.flows.pipeline import backfill as backfill_flow
from oneclass.flows.pipeline import nightly_retrain as nightly_flow
from oneclass.flows.tune_flow import tune as tune_flow
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.settings import STAGE_SETTINGS, validate_settings

ROOT = Path(__file__).parents[2]
FLOWS = {
    BackfillParameters: backfill_flow,
    NightlyRetrainParameters: nightly_flow,
    TuneParameters: tune_flow,
}
FULL = {
    "value": "stars",
    "time": ["day", "clock"],
    "event": "kind",
    "libraries": ["libraries/ml-1m.json"],
    "dataset": "ml-1m",
    "home": "a b",
    "write": "shop",
    "config": ["one.toml", "two.toml"],
    "settings": {"binarize.threshold": 4, "split.scheme": "liang2018", "mrf_dense.centred": False},
    "seed": 7,
    "threads": 2,
    "memory": "4GB",
    "workers": 2,
    "dask": "tls://machine:8786",
    "dask_unencrypted": True,
    "source": ["ratings.csv"],
    "split_files": ["train.txt", "test.txt"],
    "models": ["slim", "wmf"],
    "protocols": ["leave_one_out"],
    "since": date(2026, 1, 2),
    "until": date(2026, 2, 3),
    "every": "2w",
    "dry_run": True,
    "replace": True,
    "model": "wmf",
    "test": True,
    "trials": 3,
    "batch_size": 3,
    "protocol": "given",
    "timeout": 1.5,
    "user": "u7",
    "users": ["u7"],
    "titles": "movies.csv",
    "item": ["i3", "tea, green"],
    "history": ["i1", "i 2"],
    "n": 7,
    "list_": "trending",
    "category": "tea, green",
    "window_days": 7,
    "within": ["i4"],
    "without": ["i5", "i6"],
    "placement": "home",
    "where": "stock > 0 and genre = 'a b'",
    "seen": "include",
    "json_": True,
    "host": "::1",
    "port": 0,
    "host_names": ["shop.example"],
    "api_key_file": "keys.txt",
    "certificate": "shop.pem",
    "private_key": "shop.key",
    "wait": True,
    "access_log": "-",
    "cron": "30 2 * * *",
    "timezone": "Europe/Paris",
    "pool": "nights",
    "rollback": "a-run",
    "run": "a-run",
    "out": "a b",
}


@pytest.mark.parametrize("kind", FLOWS)
def test_prefect_shows_every_parameter_with_its_type_default_and_description(kind):
    shown, declared = parameter_schema(FLOWS[kind]), kind.model_json_schema()
    assert list(shown.properties) == list(kind.model_fields)
    assert shown.required == declared["required"] if "required" in declared else not shown.required
    for name, of_parameter in shown.properties.items():
        for key in ("type", "anyOf", "items", "default", "description"):
            assert of_parameter.get(key) == declared["properties"][name].get(key), (name, key)
        assert of_parameter["description"]


def test_prefect_shows_what_is_trained_before_the_cluster_and_lists_the_values():
    shown = parameter_schema(FLOWS[NightlyRetrainParameters]).properties
    names = sorted(shown, key=lambda name: shown[name]["position"])
    assert names[:4] == ["dataset", "home", "config", "settings"]
    assert max(map(names.index, ("models", "protocols", "config", "settings"))) < names.index("workers")
    assert names[-3:] == ["workers", "dask", "dask_unencrypted"]
    assert shown["models"]["items"]["enum"] == sorted(MODELS)
    assert shown["protocols"]["items"]["enum"] == list(PROTOCOLS)


COLUMNS = {"user": "who", "item": "7"}
"""Of logs, where other commands mean ids."""


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_line_gives_the_parameters_and_can_be_spelt_again(name):
    kind = commands.COMMANDS[name].parameters
    given = kind(**{name: FULL[name] for name in kind.model_fields} | (COLUMNS if "event" in kind.model_fields else {}))
    words = shlex.split(cli.to_command_line("flows.any", given))[3:]
    assert cli.parse_parameters(kind, commands.build_parser(name).parse_args(words)) == given


def test_the_deployment_passes_parameters_that_its_flow_takes(monkeypatch):
    monkeypatch.chdir(ROOT)
    for deployment in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]:
        flow = load_flow_from_entrypoint(deployment["entrypoint"])
        assert flow is nightly_flow
        assert flow.name == deployment["name"]
        assert flow.validate_parameters(deployment["parameters"] | {"dataset": "ml-1m"})["dataset"] == "ml-1m"


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValidationError, match="datasets"):
        RunParameters(dataset="d", datasets="e")


def test_an_assignment_that_is_none_is_reported():
    with pytest.raises(InputError, match="--set nonsense: write it as"):
        cli.parse_parameters(
            RunParameters, commands.build_parser("backfill").parse_args(["--dataset", "d", "--set", "nonsense"])
        )


@pytest.mark.slow
@pytest.mark.parametrize("module", [f"oneclass.flows.{name}" for name in commands.COMMANDS])
def test_help_loads_nothing_that_takes_long(module):
    script = (
        f"import runpy, sys; sys.argv = ['{module}', '--help']\n"
        f"try: runpy.run_module('{module}', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "slow = {'prefect', 'numpy', 'numba', 'duckdb', 'polars', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--dataset NAME" in done.stdout, done.stderr


def test_importing_flows_leaves_stderr_alone():
    script = (
        "import atexit, sys; atexit.register(lambda: print('said at exit', file=sys.stderr))\n"
        "import flows, flows.cli, flows.parameters"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "said at exit\n"


@pytest.mark.slow
def test_a_command_leaves_no_complaint_on_stderr(prefect_server, tmp_path):
    """The message of a failed run is the last; DuckDB's binding would add a page on what it takes for leaked."""
    log = tmp_path / "ratings.csv"
    log.write_text("userId,movieId,rating\n1,1,7\n")
    words = ["--dataset", "ml-latest-small", "--models", "popularity", "--source", log, "--home", tmp_path / "home"]
    environment = {**os.environ, "PREFECT_API_URL": prefect_server}
    command = [sys.executable, "-m", "flows.backfill", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1 and "the contract of raw.rejects is broken" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("The stage ingest was rolled back")
    assert done.stderr.count("the contract of raw.rejects is broken") == 1 and "\\n" not in done.stderr
    assert "Task run 'ingest' - Finished in state Failed\n" in done.stderr


@pytest.mark.slow
def test_a_flow_that_is_run_by_another_program_leaks_nothing(prefect_server):
    """Such as a worker, whose stderr the project leaves alone: modules are kept, so that Python empties them."""
    script = (
        "from prefect import flow\n"
        "from oneclass.flows import pipeline\n"
        "from oneclass.tasks.binarize.stage import binarize\n"
        "flow(pipeline._pin_modules)()\n"
    )
    environment = {**os.environ, "PREFECT_API_URL": prefect_server}
    command = [sys.executable, "-c", script]
    assert "leaked" not in subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr


def list_numbers():
    """Every number among the settings of stages and models."""
    for name in [*STAGE_SETTINGS, *MODELS]:
        kind = STAGE_SETTINGS[name] if name in STAGE_SETTINGS else MODELS[name].Settings
        for field, info in kind.model_fields.items():
            if "float" in str(info.annotation):
                yield name, field


@pytest.mark.parametrize("number", ["inf", "nan", "-inf"])
def test_no_setting_takes_a_number_that_is_not_finite(number):
    settings = list(list_numbers())
    assert len(settings) > 50
    for name, field in settings:
        for value in (float(number), number):
            with pytest.raises(InputError, match=f"setting {name}.{field}"):
                validate_settings(name, {field: value})
    with pytest.raises(ValidationError):
        TuneParameters(timeout=float(number))
