"""Parameters are flags, what Prefect shows and a command again; settings add up; wrong ones are named."""

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

from oneclass.flows import commands, pipeline
from oneclass.flows.parameters import (
    BackfillParameters,
    DatasetParameters,
    NightlyRetrainParameters,
    ReplayParameters,
    describe_parameters,
)
from oneclass.flows.pipeline import backfill as backfill_flow
from oneclass.flows.pipeline import nightly_retrain as nightly_flow
from oneclass.flows.settings import RunSettings
from oneclass.flows.settings import resolve_settings as resolved
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import InputError
from oneclass.tasks.settings import STAGE_SETTINGS, validate_settings
from oneclass.tasks.split.protocols import SeenItems
from oneclass.tasks.split.stage import Splits
from oneclass.tasks.stores.resources import available_cores


def resolve_backfill(dataset: str, **given) -> RunSettings:
    """The settings of a backfill; paths may be given as such."""
    given |= {name: str(given[name]) for name in ("home",) if name in given}
    given |= {name: list(map(str, given[name])) for name in ("config",) if name in given}
    return resolved(BackfillParameters(dataset=dataset, **given))


def test_layers_override_one_another(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("[mrf_dense]\nl2 = 7.0\n[binarize]\nthreshold = 3\n")
    run = resolve_backfill("ml-1m", home=tmp_path, config=[config], settings={"binarize.threshold": 5})
    assert run.binarize.threshold == 5  # --set over the file
    assert run.models["mrf_dense"].l2 == 7.0  # the file over the data set's own
    assert resolve_backfill("ml-1m", home=tmp_path).binarize.threshold == 4  # the data set's own over the default


def test_titles_are_those_of_the_setting_or_the_data_sets_file(tmp_path):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text('[titles]\nfile = "products.csv"\n')
    by_file, setting = tmp_path / "datasets" / "products.csv", {"publish.titles": "set.csv"}
    assert resolve_backfill("shop", home=tmp_path).publish.titles == str(by_file)
    assert resolve_backfill("shop", home=tmp_path, settings=setting).publish.titles == "set.csv"
    assert resolve_backfill("ml-1m", home=tmp_path).publish.titles is None


WEIGHING, IN_TIME = {"recency_exponent": 0.5}, {"protocols": ["next_events"]}
LOG = {"source": ["log.csv"]}


@pytest.mark.parametrize(
    ("dataset", "given", "kept"),
    [
        ("demo", {"models": ["slim"]}, False),  # the demo's file has the settings of its models
        ("demo", {"models": ["slim"], "settings": {"slim.recency_exponent": 0.5}}, True),
        ("demo", {"models": ["blend"], "settings": {"blend.components": [
            {"model": "slim", "settings": WEIGHING}, {"model": "wmf"},
        ]}}, True),
        ("demo", {"models": ["slim"], **IN_TIME, "settings": {"train.tune": "always"}}, True),
        ("mine", {"models": ["slim"], **IN_TIME, **LOG}, True),  # by a search
        ("mine", {"models": ["wmf"], **IN_TIME, **LOG}, False),  # which does not weigh likes by recency
        ("mine", {"models": ["slim"], **IN_TIME, **LOG, "settings": {"split.order": False}}, False),
    ],
)  # fmt: skip
def test_the_split_keeps_the_order_of_likes_where_a_model_or_a_search_may_weigh_it(tmp_path, dataset, given, kept):
    assert bool(resolve_backfill(dataset, home=tmp_path, **given).split.order) == kept


def test_the_home_is_an_option_then_the_environment_then_var(tmp_path, monkeypatch):
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    assert str(resolve_backfill("demo").home.root) == "var"
    monkeypatch.setenv("ONECLASS_HOME", str(tmp_path / "of-environment"))
    assert resolve_backfill("demo").home.root == tmp_path / "of-environment"
    assert resolve_backfill("demo", home=tmp_path).home.folder == tmp_path / "demo"


def test_all_names_every_installed_model_and_refuses_none_as_too_large(tmp_path):
    run = resolve_backfill("mine", home=tmp_path, source=["log.csv"], models=["all"])
    assert {name for name, model in MODELS.items() if model.extra is None} <= set(run.models) <= set(MODELS)
    assert not run.are_named and "hpf" not in resolve_backfill("mine", home=tmp_path, source=["log.csv"]).models


@pytest.mark.parametrize(
    ("models", "seen", "kept", "times"),
    [([], True, True, "auto"), ([], False, False, "auto"), (["popularity", "repeat"], False, True, True)],
)
def test_models_of_returns_run_by_default_where_lists_include_seen_items(tmp_path, models, seen, kept, times):
    run = resolve_backfill("ml-100k", home=tmp_path, models=models)
    assert run.times == times
    splits = Splits(seen_items=SeenItems(seen), ordered=True)
    assert ("repeat" in pipeline.drop_optional_models(run, splits).models) == kept


def test_models_of_order_run_by_default_where_likes_have_one_and_are_refused_by_name(tmp_path):
    run = resolve_backfill("ml-100k", home=tmp_path)
    for ordered in (True, False):
        models = pipeline.drop_optional_models(run, Splits(ordered=ordered)).models
        assert ({"slist", "transitions"} & models.keys() == {"slist", "transitions"}) == ordered
    named = resolve_backfill("ml-100k", home=tmp_path, models=["popularity", "slist"])
    with pytest.raises(InputError, match=r"^slist: needs the order of likes, and no event has a time.*order = true"):
        pipeline.drop_optional_models(named, Splits())


def test_what_a_person_says_of_the_order_stands(tmp_path):
    run = resolve_backfill("ml-100k", home=tmp_path, models=["slist"], settings={"split.order": False})
    with pytest.raises(InputError, match="and split.order is false"):
        pipeline.drop_optional_models(run, Splits())


def test_protocols_default_to_those_that_the_log_allows_or_to_the_given_split(tmp_path):
    run = resolve_backfill("demo", home=tmp_path)
    assert run.protocols == ("strong_generalization", "leave_one_out", "next_events")
    assert run.optional_protocols == ("next_events",)
    assert resolve_backfill("demo", home=tmp_path, protocols=["next_events"]).optional_protocols == ()
    assert resolve_backfill("gowalla", home=tmp_path, split_files=["train.txt", "test.txt"]).protocols == ("given",)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dataset": "ml-1n"}, "ml-1n.*ml-1m"),
        ({"models": ["mrf_dens"]}, "model mrf_dens: unknown. Did you mean mrf_dense?"),
        ({"protocols": ["leave_one"]}, "protocol leave_one: unknown"),
        ({"settings": {"binarise.threshold": 1}}, "setting binarise: unknown. Did you mean binarize?"),
        ({"protocols": ["given"]}, "needs --split-files"),
        ({"protocols": ["leave_one_out"], "split_files": ["a", "b"]}, "--split-files: are for the protocol given"),
        (
            {"settings": {"binarize.treshold": 1}},
            "setting binarize.treshold: unknown. Did you mean binarize.threshold?",
        ),
        ({"settings": {"binarize.threshold": "high"}}, "setting binarize.threshold = 'high'"),
        (
            {"settings": {"split.held_out_users": 50}},
            "split.held_out_users = 50: is read by split.scheme = liang2018 alone, and .* split.scheme = hashed. Set",
        ),
        ({"dataset": "netflix", "settings": {"split.held_out_share": 0.2}}, "has split.scheme = liang2018"),
        ({"settings": {"slim.recency_exponent": -1}}, "setting slim.recency_exponent = -1"),
        ({"settings": {"publish.model": "slimm"}}, "setting publish.model = slimm"),
        ({"settings": {"publish.companion": "wmf"}}, "publish.companion = wmf: .*paired_symbols.* Name one of these"),
        ({"config": ["absent.toml"]}, "--config absent.toml: cannot be read"),
        ({"memory": "4"}, "--memory 4: write a size of at least 256 MB, such as 512MB or 4GB"),
        ({"home": "a?b"}, "--home a.b: its full path has a \\? in it"),
        ({"workers": 2, "dask": "tcp://host:8786"}, "--workers, --dask: give one of them"),
        ({"since": date(2026, 1, 2), "until": date(2026, 1, 1)}, "--since 2026-01-02: is after --until 2026-01-01"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        resolve_backfill(**{"dataset": "ml-1m", "home": tmp_path, **wrong})


def test_what_a_run_may_take_is_what_was_asked_for_and_no_more_than_there_is(tmp_path, caplog):
    private = {"files.readable_by": "owner"}
    home = resolve_backfill("ml-1m", home=tmp_path, memory="512MB", threads=100_000, settings=private).home
    assert (home.limits.memory, home.limits.threads) == (512 * 10**6, available_cores())
    assert home.files.readable_by == "owner"
    assert f"--threads 100000: this process may use {available_cores()} cores" in caplog.text


def test_a_data_sets_own_count_waits_for_its_scheme(tmp_path):
    assert resolve_backfill("ml-1m", home=tmp_path).split.scheme == "hashed"
    chosen = resolve_backfill("ml-1m", home=tmp_path, settings={"split.scheme": "liang2018"}).split
    assert (chosen.scheme, chosen.held_out_users) == ("liang2018", 500)
    smaller = {"split.scheme": "hashed", "split.held_out_share": 0.2}
    assert resolve_backfill("netflix", home=tmp_path, settings=smaller).split.held_out_share == 0.2


def test_a_config_that_is_not_toml_is_reported(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("threshold = 4\n")
    with pytest.raises(InputError, match="setting threshold: belongs under a stage or a model"):
        resolve_backfill("ml-1m", home=tmp_path, config=[path])
    path.write_text("[mrf_dense\n")
    with pytest.raises(InputError, match="broken.toml: is not TOML"):
        resolve_backfill("ml-1m", home=tmp_path, config=[path])


def test_settings_are_few():
    """A setting that no data set's file, guide or paper sets is a constant."""
    of_models = {name: len(MODELS[name].Settings.model_fields) for name in MODELS}
    of_stages = {name: len(kind.model_fields) for name, kind in STAGE_SETTINGS.items()}
    assert sum(of_models.values()) + sum(of_stages.values()) <= 160
    assert {name: count for name, count in of_models.items() if count > 10} == {}


ROOT = Path(__file__).parents[2]
FLOWS = {BackfillParameters: backfill_flow, NightlyRetrainParameters: nightly_flow}


def parse(name: str, *words: str) -> DatasetParameters:
    """The parameters that a command line gives."""
    return commands.build_app(name)(commands.join_hyphens(words))[1]


@pytest.mark.parametrize("kind", FLOWS)
def test_prefect_shows_every_parameter_with_its_type_default_and_description(kind):
    shown, declared = parameter_schema(FLOWS[kind]), TypeAdapter(kind).json_schema()
    assert list(shown.properties) == list(describe_parameters(kind))
    assert shown.required == declared.get("required", [])
    for name, of_parameter in shown.properties.items():
        for key in ("type", "anyOf"):
            assert of_parameter.get(key) == declared["properties"][name].get(key), (name, key)
        assert of_parameter.get("default") == declared["properties"][name].get(
            "default", {"array": [], "object": {}}.get(of_parameter.get("type"))
        )
        assert of_parameter["description"] == describe_parameters(kind)[name]


def test_flags_are_few():
    """A flag that no guide uses, or that a setting says too, goes; each command also has --debug."""
    flags = [one for name in commands.COMMANDS for one in commands.build_app(name).assemble_argument_collection()]
    assert len([one for one in flags if one.name not in ("*", "--debug")]) <= 90


def test_a_command_line_gives_the_parameters():
    words = "--dataset ml-1m --home 'a b' --config one.toml two.toml --config three.toml --seed 7 --memory 4GB"
    words += " --set binarize.threshold=4 split.scheme=liang2018 --set mrf_dense.l2=5e2 --models slim,wmf"
    words += " --user who --item 7 --time day clock --event - --since 2026-01-02 --replace --every=2w"
    words += " --source a.csv --split-files train.txt test.txt --workers=2"
    given = parse("backfill", *shlex.split(words))
    assert vars(given) == vars(ReplayParameters(dataset="ml-1m")) | {
        "home": "a b",
        "config": ["one.toml", "two.toml", "three.toml"],
        "settings": {"binarize.threshold": 4, "split.scheme": "liang2018", "mrf_dense.l2": 500.0},
        "seed": 7,
        "memory": "4GB",
        "models": ["slim", "wmf"],
        "workers": 2,
        "split_files": ("train.txt", "test.txt"),
        "source": ["a.csv"],
        "user": "who",
        "item": "7",
        "time": ["day", "clock"],
        "event": "-",
        "since": date(2026, 1, 2),
        "replace": True,
        "every": "2w",
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
        (["--dataset", "d", "--sede", "1"], "Unknown option: --sede. Did you mean --seed?"),
        (["--dataset", "d", "--since", "yesterday"], 'for --since: unable to convert "yesterday" into date'),
        (["--dataset", "d", "--seed", "-1"], 'Invalid value "-1" for --seed. Must be >= 0'),
        (["--dataset", "d", "--set", "threshold=4"], "for --set: threshold=4: write it as name.setting=value"),
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
        assert flow is nightly_flow and flow.name == deployment["name"]
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
