"""The thin Prefect task round a stage's plain function."""

import functools
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.assets import materialize
from prefect.cache_policies import NO_CACHE

from tasks.orchestration import artifacts, lineage
from tasks.orchestration.progress import duration

logger = logging.getLogger(__name__)

FOLLOWED_BY = {"ingest": "binarize", "binarize": "split", "diagnose": "train", "publish": "report"}


def stage_task(function: Callable[..., Any], run_name: str | None = None) -> Callable[..., Any]:
    """A task named like the stage, to be called within a flow.

    It shows the stage's contract as an artifact, held or broken, and what the stage read and made as assets. The
    stages keep their own state under digests, so that Prefect hashes and caches nothing.

    Args:
        function: a stage; takes `home` and `run_id`.
        run_name: the task run's name, with the function's parameters in braces; the stage's name by default.
    """
    stage = function.__name__
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        began = time.monotonic()
        try:
            result = function(*args, **kwargs)
        finally:
            artifacts.contract_results(arguments["home"], arguments["run_id"], stage)
        following = f"; next: {FOLLOWED_BY[stage]}" if stage in FOLLOWED_BY else ""
        logger.info("%s: done in %s%s", stage, duration(time.monotonic() - began), following)
        return result

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        options = {
            "name": stage,
            "task_run_name": run_name or stage,
            "cache_policy": NO_CACHE,
            "persist_result": False,
        }
        reads, writes = lineage.of(stage, signature.bind(*args, **kwargs).arguments)
        made = materialize(*writes, asset_deps=reads, **options) if writes else task(**options)
        return made(run)(*args, **kwargs)

    return call
