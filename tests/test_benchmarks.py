"""Benchmarks are run by hand; here it is only seen that each still fits the code it measures."""

import importlib
import inspect
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_a_benchmark_can_be_imported_and_says_how_to_run_it(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FILES[0].parents[1]))
    module = importlib.import_module(f"benchmarks.{name}")
    assert f"python -m benchmarks.{name}" in module.__doc__
    assert inspect.isfunction(module.main)
