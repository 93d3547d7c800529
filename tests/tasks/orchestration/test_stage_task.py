"""A stage's task is Prefect's own: made once, submitted, given options; it tries again what may end otherwise."""

import pytest
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.states import Failed

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.binarize import binarize_task
from oneclass.tasks.diagnose import diagnose_task
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.evaluate.stage import evaluate_task
from oneclass.tasks.ingest import ingest_task
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.publish.stage import publish_task
from oneclass.tasks.split import split_task
from oneclass.tasks.sweep import refit_task
from oneclass.tasks.train import train_task

TASKS = [
    ingest_task,
    binarize_task,
    split_task,
    diagnose_task,
    train_task,
    evaluate_task,
    publish_task,
    refit_task,
]


@pytest.mark.parametrize("one", TASKS, ids=lambda one: one.name)
def test_a_stage_is_a_task_with_its_retries_declared(one):
    assert isinstance(one, Task) and one.cache_policy == NO_CACHE and not one.persist_result
    assert one.retries == 1 and one.retry_condition_fn is not None
    other = one.with_options(retries=3, timeout_seconds=60)
    assert (other.retries, other.timeout_seconds, other.name) == (3, 60, one.name)
    assert (other.task_run_name, other.retry_condition_fn) == (one.task_run_name, one.retry_condition_fn)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (OSError("the network's folder is away"), True),
        (ContractBroken("train", []), False),
        (InputError("no such file"), False),
        (OneclassError("cannot be fitted"), False),
    ],
    ids=repr,
)
def test_what_would_fail_in_the_same_way_is_not_tried_again(error, again):
    assert train_task.retry_condition_fn(train_task, None, Failed(data=error)) is again


def test_outside_of_a_task_run_a_stage_needs_no_prefect(home):
    def binarize(home, run_id):
        return run_id

    assert stage_task(binarize).fn(home, run_id="run") == "run"
