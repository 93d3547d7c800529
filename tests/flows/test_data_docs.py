"""Great Expectations' pages on request."""

import pytest

from oneclass.flows import commands
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home


@pytest.mark.slow
def test_pages_are_written_for_a_warehouse_with_settings_of_an_earlier_version(tmp_path, capsys):
    home = Home(tmp_path, "ml-1m")
    with runs.record_run(home, "evaluated", "backfill", {"publish": {"explore": "bonus", "postgres_env": "SHOP"}}):
        pass
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "insert into evaluation.metrics by name select 'evaluated' as run_id, 'leave_one_out' as protocol, "
            "'slim' as model, 'score' as score, 'ndcg@100' as metric, 0.1 as value, 60 as users"
        )
    assert commands.main("data_docs", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 0
    assert "index.html" in capsys.readouterr().out
    assert "indexed.interactions" in (tmp_path / "ml-1m" / "data_docs" / "index.html").read_text()


def test_an_absent_warehouse_is_reported(tmp_path, capsys):
    assert commands.main("data_docs", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 2
    assert "Run the backfill of ml-1m first" in capsys.readouterr().err
