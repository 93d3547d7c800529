"""The thin Prefect task round a stage's plain function."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from tasks import artifacts


def stage_task(function: Callable[..., Any], run_name: str | None = None) -> Task:
    """A task named like the stage, which shows the stage's contract as an artifact, held or broken.

    The stages keep their own state under digests, so that Prefect hashes and caches nothing.

    Args:
        function: a stage; takes `home` and `run_id`.
        run_name: the task run's name, with the function's parameters in braces; the stage's name by default.
    """
    stage = function.__name__
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        try:
            return function(*args, **kwargs)
        finally:
            artifacts.contract_results(arguments["home"], arguments["run_id"], stage)

    return task(name=stage, task_run_name=run_name or stage, cache_policy=NO_CACHE, persist_result=False)(run)
