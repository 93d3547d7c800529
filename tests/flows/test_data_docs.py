"""Great Expectations' pages on request."""

import pytest

from oneclass.flows import commands
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home


@pytest.mark.slow
def test_pages_are_written_for_a_warehouse(tmp_path, capsys):
    with warehouse.open_warehouse(Home(tmp_path, "ml-1m")):
        pass
    assert commands.main("data_docs", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 0
    assert "index.html" in capsys.readouterr().out
    assert "indexed.interactions" in (tmp_path / "ml-1m" / "data_docs" / "index.html").read_text()


def test_an_absent_warehouse_is_reported(tmp_path, capsys):
    assert commands.main("data_docs", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 2
    assert "Run the backfill of ml-1m first" in capsys.readouterr().err
