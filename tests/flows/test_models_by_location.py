"""`--models package.module:Class` fits and publishes a class of another package under that name."""

import contextlib
import io

import pytest

from oneclass.flows import commands
from oneclass.tasks.errors import InputError
from oneclass.tasks.settings import check_model
from tests.flows.conftest import ML, query_rows

MODULE = '''
import numpy as np
from pydantic import Field

from oneclass import Popularity


class BackwardsSettings(Popularity.Settings):
    """Whether the last are the first."""

    sign: int = Field(-1, description="Of the scores.")


class Backwards(Popularity):
    """Rank the least popular items first."""

    name = "backwards"
    Settings = BackwardsSettings

    def _scores(self, histories, users, score):
        row = self.params.sign * self.item_degrees.astype(np.float32)
        return np.tile(row, (histories.shape[0], 1))
'''
NAME = "of_a_stranger.models:Backwards"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that can be imported, with one model."""
    (tmp_path / "site" / "of_a_stranger").mkdir(parents=True)
    (tmp_path / "site" / "of_a_stranger" / "__init__.py").write_text("")
    (tmp_path / "site" / "of_a_stranger" / "models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere_at_all:Model", "No module named 'nowhere_at_all'"),
        ("of_a_stranger.models:Forwards", "has no subclass of oneclass.Model with the name Forwards"),
        (":Backwards", "Write module:Class"),
    ],
)
def test_what_is_no_model_is_refused(name, words):
    with pytest.raises(InputError, match=words):
        check_model(name)


@pytest.mark.slow
@pytest.mark.usefixtures("package", "prefect_server")
def test_a_run_evaluates_and_publishes_it(ratings, tmp_path, capsys):
    arguments = [*ML, "--home", str(tmp_path / "home")]
    settings = ["--set", f"{NAME}.sign=1", "publish.model=" + NAME]
    with contextlib.redirect_stdout(io.StringIO()):
        run = ["--source", str(ratings), "--models", f"popularity,{NAME}", *settings]
        assert commands.main("backfill", [*arguments, *run]) == 0
    query = "select value from evaluation.metrics where metric = 'mean_rank' and protocol = 'leave_one_out'"
    values = query_rows(tmp_path / "home", query)
    assert len(values) == 2 and values[0] == values[1]  # with this sign both rank by popularity
    capsys.readouterr()
    for command in (["recommend", "--user", "7"], ["explain", "--user", "7"], ["cite"]):
        assert commands.main(command[0], [*arguments, *command[1:]]) == 0, command
    assert NAME in capsys.readouterr().out
