"""Wrap a stage's plain function as a Prefect task."""

import functools
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import get_state_exception

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.stores import resources

logger = logging.getLogger(__name__)

MAX_RETRIES, RETRY_DELAY_SECONDS = 1, 10


def stage_task(
    function: Callable[..., Any], run_name: str | None = None, *, stage: str | None = None
) -> Task[..., Any]:
    """Create a task with the stage's name.

    Stages cache their results by digest themselves, so
    Prefect's cache is off. A failed run is retried once, unless it would fail in the same way.

    Args:
        function: a stage; takes `home` and `run_id`.
        run_name: template of the task run's name, with the function's parameters in braces; by default the stage's
            name.
        stage: name of the stage; by default the function's.
    """
    stage = stage or function.__name__
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        started = time.monotonic()
        name = (run_name or stage).format(**bound.arguments)
        with resources.memory_errors(name):
            result = function(*args, **kwargs)
        logger.info("%s: done in %s", name, format_duration(time.monotonic() - started))
        return result

    return Task(
        fn=run,
        name=stage,
        task_run_name=run_name or stage,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=MAX_RETRIES,
        retry_delay_seconds=RETRY_DELAY_SECONDS,
        retry_condition_fn=_is_retryable,
    )


def _is_retryable(task: Task[..., Any], task_run: TaskRun, state: State) -> bool:
    """Whether a retry may succeed: not if a contract is broken, or the input or the settings are wrong."""
    error = get_state_exception(state)
    return not isinstance(error, ContractBroken | OneclassError)
