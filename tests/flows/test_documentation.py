"""Every documented command parses, every named file exists, and the pages keep to their limits."""

import re
import shlex
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from oneclass.flows import (
    PREFECT_DEFAULTS,
    backfill,
    deploy,
    explain,
    nightly_retrain,
    promote,
    recommend,
    serve,
    sweep,
    tune,
)
from oneclass.models.registry import MODELS
from oneclass.tasks import datasets, model_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
ADDED = "item_knn"  # the model that docs/how-to/adding_a_model.md adds
COMMANDS = {
    "flows.backfill": backfill.parser,
    "flows.deploy": deploy.parser,
    "flows.nightly_retrain": nightly_retrain.parser,
    "flows.tune": tune.parser,
    "flows.explain": explain.parser,
    "flows.sweep": sweep.parser,
    "flows.promote": promote.parser,
    "flows.recommend": recommend.parser,
    "flows.serve": serve.parser,
}


def typed() -> list[str]:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    return [found for text in texts for found in re.findall(r"^    .*?-m (flows\.\S+ .*)$", text, flags=re.MULTILINE)]


@pytest.mark.parametrize("line", typed())
def test_a_documented_command_is_taken(line):
    module, *arguments = shlex.split(line)
    if module not in COMMANDS or "--help" in arguments:
        return
    given = COMMANDS[module]().parse_args(arguments)
    models = [given.model] if getattr(given, "model", None) else getattr(given, "models", [])
    assert set(models) <= {*MODELS, ADDED}


def test_every_help_names_the_data_sets_and_models(capsys):
    with pytest.raises(SystemExit):
        backfill.parser().parse_args(["--help"])
    words = set(re.split(r"[\s,]+", capsys.readouterr().out))
    assert set(MODELS) | set(datasets.list_datasets(ROOT / "nowhere")) <= words
    assert set(model_names.list_models()) == set(MODELS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_the_version(command, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        COMMANDS[command]().parse_args(["--version"])
    assert capsys.readouterr().out == f"oneclass {version('oneclass')}\n"


def test_the_version_has_an_entry_in_the_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {project['version']}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_there_are_commands_to_check():
    assert len(typed()) >= 8


def test_the_documented_data_set_is_taken(tmp_path):
    page = (ROOT / "docs" / "how-to" / "datasets.md").read_text(encoding="utf-8")
    shown = page.split("## A file of your own")[1].split("Columns are found")[0]
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text("\n".join(line[4:] for line in shown.splitlines()))
    assert datasets.load_dataset("shop", tmp_path).columns.item == ("sku",)


def test_the_two_commands_of_the_readme_stand_on_one_line_each():
    lines = [
        line
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("    python3 -m venv")
    ]
    assert [line.rpartition("&& ")[2] for line in lines] == [
        ".venv/bin/python -m flows.backfill --dataset demo",
        ".venv/bin/python -m pytest -n 2",
    ]
    assert all("-c constraints.txt" in line for line in lines)


def test_the_nightly_commands_tell_prefect_to_send_nothing_home():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before = readme.partition("    prefect server start\n")[0].splitlines()[-1].split()
    assert before[0] == "export" and len(before) == 3
    assert all(PREFECT_DEFAULTS[name] == value for name, value in (word.split("=") for word in before[1:]))


@pytest.mark.parametrize("page", NAMES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:flows|tasks|models|sql|data_contracts|tests|benchmarks|docs)/[\w/.-]*)", text))
    assert not [name for name in named if not (ROOT / name).exists() and name != f"models/{ADDED}.py"]


def test_the_readme_and_the_docs_are_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 130 and len(readme.split()) <= 900
    docs = [page for page in PAGES if page.parent != ROOT and page.name != "reference.md"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in docs) <= 45_000
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert len(glossary.splitlines()) <= 45


@pytest.mark.parametrize("page", [page for page in NAMES if page != "docs/reference.md"])
def test_prose_has_at_most_100_columns(page):
    """Tables and code, which cannot be wrapped, are exempt."""
    fenced, long = False, []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        fenced ^= line.startswith("```")
        if len(line) > 100 and not fenced and not line.startswith(("|", "    ")):
            long.append(number)
    assert not long
