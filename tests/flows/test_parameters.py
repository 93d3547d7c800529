"""The parameters of flows and commands: stated once, they are flags, what Prefect shows, and a command again."""

import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from pydantic import TypeAdapter

from oneclass.flows import commands
from oneclass.flows.parameters import (
    BackfillParameters,
    DatasetParameters,
    NightlyRetrainParameters,
    describe_parameters,
)
from oneclass.flows.pipeline import backfill as backfill_flow
from oneclass.flows.pipeline import nightly_retrain as nightly_flow
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.settings import STAGE_SETTINGS, validate_settings

ROOT = Path(__file__).parents[2]
FLOWS = {BackfillParameters: backfill_flow, NightlyRetrainParameters: nightly_flow}


def parse(name: str, *words: str) -> DatasetParameters:
    """The parameters that a command line gives."""
    return commands.build_app(name)(commands.join_hyphens(words))[1]


@pytest.mark.parametrize("kind", FLOWS)
def test_prefect_shows_every_parameter_with_its_type_default_and_description(kind):
    shown, declared = parameter_schema(FLOWS[kind]), TypeAdapter(kind).json_schema()
    assert list(shown.properties) == list(describe_parameters(kind))
    assert shown.required == declared["required"] if "required" in declared else not shown.required
    for name, of_parameter in shown.properties.items():
        kinds = ("type", "anyOf") if name in ("models", "protocols") else ("type", "anyOf", "items")
        for key in kinds:
            assert of_parameter.get(key) == declared["properties"][name].get(key), (name, key)
        assert of_parameter.get("default") == declared["properties"][name].get(
            "default", {"array": [], "object": {}}.get(of_parameter.get("type"))
        )
        assert of_parameter["description"] == describe_parameters(kind)[name]


def test_flags_are_few():
    """A flag that no guide uses, or that a setting says too, goes; each command also has --debug."""
    flags = [one for name in commands.COMMANDS for one in commands.build_app(name).assemble_argument_collection()]
    assert len([one for one in flags if one.name not in ("*", "--debug")]) <= 90


def test_prefect_shows_what_is_trained_before_the_cluster_and_lists_the_values():
    shown = parameter_schema(FLOWS[NightlyRetrainParameters]).properties
    names = sorted(shown, key=lambda name: shown[name]["position"])
    assert names[:4] == ["dataset", "home", "config", "settings"] and names[-2:] == ["workers", "dask"]
    assert shown["models"]["items"]["enum"] == sorted(MODELS)
    assert shown["protocols"]["items"]["enum"] == list(PROTOCOLS)


def test_a_command_line_gives_the_parameters():
    words = "--dataset ml-1m --home 'a b' --config one.toml two.toml --config three.toml --seed 7 --memory 4GB"
    words += " --set binarize.threshold=4 split.scheme=liang2018 --set mrf_dense.l2=5e2 --models slim,wmf"
    words += " --user who --item 7 --time day clock --event - --since 2026-01-02 --replace --every=2w"
    words += " --source a.csv --split-files train.txt test.txt --workers=2"
    given = parse("backfill", *shlex.split(words))
    assert vars(given) == {
        "dataset": "ml-1m",
        "home": "a b",
        "config": ["one.toml", "two.toml", "three.toml"],
        "settings": {
            "binarize.threshold": 4,
            "split.scheme": "liang2018",
            "mrf_dense.l2": 500.0,
        },
        "seed": 7,
        "threads": None,
        "memory": "4GB",
        "models": ["slim", "wmf"],
        "protocols": [],
        "workers": 2,
        "dask": None,
        "split_files": ("train.txt", "test.txt"),
        "source": ["a.csv"],
        "user": "who",
        "item": "7",
        "value": None,
        "time": ["day", "clock"],
        "event": "-",
        "since": date(2026, 1, 2),
        "until": None,
        "replace": True,
        "every": "2w",
        "dry_run": False,
    }
    assert given.columns == {"user": "who", "item": "7", "time": ["day", "clock"], "event": "-"}
    assert parse("inspect", "--value", "-", "--time", "-").columns == {"value": "-", "time": ["-"]}
    assert parse("promote", "--dataset", "d", "--rollback").rollback == []
    assert parse("promote", "--dataset", "d", "--rollback", "a-run").rollback == ["a-run"]
    assert parse("serve", "--dataset", "d", "--access-log", "-").access_log == "-"
    items = parse("recommend", "--dataset", "d", "--item", "tea, green", "i 2", "--list", "new", "--json")
    assert (items.item, items.list_, items.json_) == (["tea, green", "i 2"], "new", True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--dataset requires an argument"),
        (["--dataset", "d", "--sede", "1"], "Unknown option: --sede. Did you mean --seed?"),
        (["--dataset", "d", "--since", "yesterday"], 'for --since: unable to convert "yesterday" into date'),
        (["--dataset", "d", "--seed", "x"], 'for --seed: unable to convert "x" into int'),
        (["--dataset", "d", "--split-files", "one.txt"], "--split-files requires 2 positional arguments"),
        (["--dataset", "d", "--set", "threshold=4"], "for --set: threshold=4: write it as name.setting=value"),
        (["--dataset", "d", "--set", "nonsense"], "for --set: nonsense: write it as name.setting=value"),
        (["--dataset", "d", "more"], "more"),
    ],
)
def test_a_wrong_flag_is_named(words, message):
    with pytest.raises(CycloptsError) as refused:
        parse("backfill", *words)
    assert message in str(refused.value)


def test_the_deployment_passes_parameters_that_its_flow_takes(monkeypatch):
    monkeypatch.chdir(ROOT)
    for deployment in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]:
        flow = load_flow_from_entrypoint(deployment["entrypoint"])
        assert flow is nightly_flow
        assert flow.name == deployment["name"]
        assert flow.validate_parameters(deployment["parameters"] | {"dataset": "ml-1m"})["dataset"] == "ml-1m"


def test_help_loads_nothing_that_takes_long():
    """Of each command, as a program; in one process, since none loads what slows the next."""
    script = (
        "import runpy, sys\n"
        "for name in sys.argv[1:]:\n"
        "    sys.argv = [name, '--help']\n"
        "    try: runpy.run_module(f'flows.{name}', run_name='__main__')\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "slow = {'prefect', 'pydantic', 'numpy', 'numba', 'duckdb', 'polars'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    command = [sys.executable, "-c", script, *commands.COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("Usage: python -m flows.") == len(commands.COMMANDS), done.stderr


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
