"""Benchmarks are run by hand; here each is imported, and states its command."""

import importlib
import inspect
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
GROUPS = ("accuracy", "speed", "scale", "reliability")
HELPERS = {"scale/pickled_calls"}  # what several benchmarks of a group share
NAMES = sorted(f"{group}/{file.stem}" for group in GROUPS for file in (FOLDER / group).glob("*.py"))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in HELPERS])
def test_a_benchmark_can_be_imported_and_states_its_command(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    dotted = f"benchmarks.{name.replace('/', '.')}"
    module = importlib.import_module(dotted)
    assert f"python -m {dotted}" in module.__doc__
    assert inspect.isfunction(module.main)


def test_every_benchmark_is_in_a_group():
    assert {file.relative_to(FOLDER).parts[0] for file in FOLDER.rglob("*.py")} == set(GROUPS)
