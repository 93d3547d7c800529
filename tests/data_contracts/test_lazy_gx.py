"""Great Expectations is loaded without what no contract uses, and what was put off works once it is used."""

import gc
import subprocess
import sys

import pytest

from oneclass.data_contracts import lazy_gx


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that notes when it is loaded."""
    (tmp_path / "put_off_here.py").write_text("import sys\nsys.loaded_here = True\nanswer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "loaded_here", False, raising=False)
    yield "put_off_here"
    sys.modules.pop("put_off_here", None)


def test_a_module_is_put_off_until_something_in_it_is_asked_for(module):
    with lazy_gx._defer_imports([module]):
        import put_off_here as placeholder
    assert not sys.loaded_here and module not in sys.modules
    assert placeholder.answer == 42 and sys.loaded_here
    assert sys.modules[module] is not placeholder


def test_a_module_may_be_asked_within_the_block(module):
    with lazy_gx._defer_imports([module]):
        import put_off_here as placeholder

        assert placeholder.answer == 42
        from put_off_here import answer
    assert answer == 42 and sys.modules[module].answer == 42


def test_a_module_that_is_loaded_stays(module):
    import put_off_here as real

    with lazy_gx._defer_imports([module]):
        import put_off_here as again
    assert again is real and sys.modules[module] is real


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_afterwards_as_it_was_before(enabled):
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        with pytest.raises(ImportError), lazy_gx._pause_garbage_collection():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()


@pytest.mark.slow
def test_a_process_that_checks_loads_no_more_than_it_needs_and_says_nothing_at_its_end():
    """Great Expectations is loaded by the first check; what it puts off works; DuckDB reports no leaks."""
    program = """
import sys, duckdb
from oneclass import data_contracts, sql
from oneclass.data_contracts import checks, lazy_gx
from oneclass.data_contracts.contracts import Column, Contract, Rule

assert "great_expectations" not in sys.modules
connection = duckdb.connect()
for statement in sql.schema():
    connection.execute(statement)
connection.begin()
print(len(data_contracts.check(connection, "publish", {"top_n": 20, "run_id": "r"})) > 40)
assert "great_expectations" in sys.modules and "duckdb_engine" not in sys.modules
assert not any(name in sys.modules for name in lazy_gx.DEFERRED_MODULES)
connection.execute("create temp table sides as select unnest(['a', 'a', 'a', 'b']) as side")
near = Rule(
    name="near", type="expect_column_kl_divergence_to_be_less_than", description="as many of the one as of the other",
    kwargs={"column": "side", "partition_object": {"values": ["a", "b"], "weights": [0.5, 0.5]}, "threshold": 0.1},
)
column = Column(type="VARCHAR", meaning="a side", nullable=True)
contract = Contract(table="sides", stage="publish", row="a side", columns={"side": column}, rules=[near])
print(checks.check_contracts(connection, [contract], {})[1].observed[:5])
assert "scipy.stats" in sys.modules and "altair" not in sys.modules
connection.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n0.130\n", "")  # 3/4 ln 3/2 + 1/4 ln 1/2
