"""A night with nothing new redoes nothing; whatever is new, changed or damaged is made anew, as from nothing."""

import shutil

import numpy as np
import pytest

from oneclass.tasks import diagnose as diagnose_stage
from oneclass.tasks.binarize import stage as binarize_stage
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.split import stage as split_stage
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores import matrices
from tests.conftest import execute_statement, query_rows

pytestmark = pytest.mark.slow

REDONE = {"binarize": binarize_stage, "split": split_stage, "diagnose": diagnose_stage}
TABLES = (
    "curated.interactions",
    "splits.strong_generalization",
    "splits.leave_one_out",
    "indexed.users",
    "indexed.items",
    "diagnostics.degrees",
    "diagnostics.power_law_fits",
)
EVENTS = [
    (f"u{user}", f"i{item}", value)
    for user in range(40)
    for item, value in zip(np.random.default_rng(user).choice(25, 9, replace=False), np.arange(9) % 5 + 1, strict=True)
]
CHANGED_BY_HAND = [
    ("update indexed.interactions set event_count = 9 where user_index = 1", "binarize"),
    ("delete from indexed.interactions where user_index = 1", "binarize"),
    ("update indexed.users set user_id = user_id || '!'", "binarize"),
    ("update indexed.leave_one_out set role = 'train'", "split"),
    ("delete from diagnostics.degrees", "diagnose"),
]


REWRITES = {"binarize": "rewrite_interactions", "split": "rewrite_splits", "diagnose": "rewrite_diagnostics"}


@pytest.fixture
def redone(monkeypatch):
    """The stages that made their tables anew, in the order in which they did."""
    names = []
    for name, module in REDONE.items():
        of_stage = REWRITES[name]
        monkeypatch.setattr(module, of_stage, record_calls(names, name, getattr(module, of_stage)))
    return names


def record_calls(names, name, made):
    few = {"replicates": 2} if name == "diagnose" else {}

    def noted(*arguments):
        names.append(name)
        return made(*arguments, **few)

    return noted


def run_stages(home, *, threshold=2, seed=3):
    """The stages from binarize to diagnose; what they return."""
    binarized = binarize_stage.binarize(home, BinarizeSettings(threshold=threshold), "r1")
    protocols = ["strong_generalization", "leave_one_out"]
    splits = split_stage.split(home, "r1", split_stage.SplitPlan(SplitSettings(held_out_share=0.2), protocols, seed))
    return binarized, splits, diagnose_stage.diagnose(home, "r1", seed)


def tables(home):
    return {table: query_rows(home, f"select * from {table} order by all") for table in TABLES}


def test_a_night_with_nothing_new_redoes_nothing(home, log_events, redone):
    log_events(EVENTS)
    first, before = run_stages(home), tables(home)
    assert redone == ["binarize", "split", "diagnose"]
    assert run_stages(home) == first and tables(home) == before
    log_events([("u1", "disliked", 1)], file_id=2)  # no new edge: it is counted, and no more
    run_stages(home)
    assert redone == ["binarize", "split", "diagnose", "binarize"]
    run_stages(home, seed=4)
    assert redone[4:] == ["split", "diagnose"]
    run_stages(home, threshold=3)
    assert redone[6:] == ["binarize", "split", "diagnose"]
    checked = "select stage, count(*) from operations.contract_results group by stage, rule having count(*) = 5"
    assert {stage for stage, _ in query_rows(home, checked)} >= {"binarize", "split", "diagnose"}


def test_tables_that_were_changed_by_hand_are_made_anew(home, log_events, redone, caplog):
    log_events(EVENTS)
    run_stages(home)
    before = tables(home)
    for statement, again in CHANGED_BY_HAND:
        redone.clear(), caplog.clear()
        execute_statement(home, statement)
        run_stages(home)
        assert redone == [again] and tables(home) == before
        assert "changed since; made anew" in caplog.text


def test_matrices_that_are_gone_or_damaged_are_made_anew(home, log_events, redone):
    log_events(EVENTS)
    _, splits, _ = run_stages(home)
    shutil.rmtree(home.matrices / splits.digests["all_edges"])
    assert run_stages(home)[1] == splits and redone[3:] == ["split"]
    file = home.matrices / splits.digests["leave_one_out"] / "train_indices.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert run_stages(home)[1] == splits and redone[3:] == ["split", "split"]
    assert matrices.has_split(home, splits.digests["leave_one_out"])
