"""Replay history night by night: one run per missing night, on the events up to the end of that day."""

import json
import logging
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from oneclass.flows.parameters import ReplayParameters
from oneclass.flows.run_hooks import check_home, prepared
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.settings import STAGE_SETTINGS, restore_settings
from oneclass.tasks.stores import warehouse

logger = logging.getLogger(__name__)

UNIT_DAYS = {"d": 1, "w": 7}
# Settings that may differ between a replayed night and the run that did it, for which the events are compared, and the
# choice that a run records with them.
IRRELEVANT_SETTINGS = ("sources", "limits", "files", "ingest", "until", "seen_items")
# The run that did each night, by the day whose end bounds its events; None if it is missing.
Nights = dict[date, str | None]


def prepare_replay(given: ReplayParameters) -> RunSettings | str:
    """Resolve the settings of the nights, and check the run if one is missing; else return the plan as text.

    Raises:
        InputError: `--every` without a first and a last night, a step that is not in days or weeks, or as
            `prepare_run`.
    """
    _list_days(given)
    run = resolve_settings(given.to_backfill(since=None, until=None))
    nights = _plan_nights(given, run)
    if given.dry_run or all(nights.values()):
        return _format_plan(given, nights)
    scan_logs(run.split_files or run.sources, run.dataset)
    check_home(run)
    return run


def _list_days(given: ReplayParameters) -> list[date]:
    """List the days from the first to the last, both included, at steps such as `1d` or `2w`."""
    if given.every is None or given.since is None or given.until is None:
        raise InputError("--every and --dry-run: give --since DATE --until DATE --every STEP, such as --every 1d.")
    if not (step := re.fullmatch(r"([1-9]\d{0,3})([dw])", given.every)):
        raise InputError(f"--every {given.every}: write a number of days or weeks, such as 1d or 2w.")
    step_days = int(step[1]) * UNIT_DAYS[step[2]]
    return [given.since + timedelta(days) for days in range(0, (given.until - given.since).days + 1, step_days)]


def _plan_nights(given: ReplayParameters, run: RunSettings) -> Nights:
    """Find the runs in the warehouse that did the requested nights.

    A run did a night if it completed with the same settings on the events up to the end of that day, and no log with
    such events was ingested or deleted afterwards.
    """
    nights: Nights = dict.fromkeys(_list_days(given))
    if run.home.warehouse.exists():
        described = json.loads(json.dumps(run.describe(), default=str))
        wanted = _relevant_settings(described, described)
        with warehouse.open_warehouse(run.home, read_only=True) as connection:
            completed = warehouse.select(connection, "runs/backfilled_until")
        for run_id, day, settings in completed.iter_rows():
            if day in nights and _relevant_settings(json.loads(settings), described) == wanted:
                nights[day] = run_id
    return nights


def _relevant_settings(settings: dict[str, Any], described: Collection[str]) -> dict[str, Any]:
    """Return the settings to compare, of those that a run describes and this version has."""
    names = set(described).difference(IRRELEVANT_SETTINGS)
    relevant = {name: value for name, value in settings.items() if name in names}
    stages = {name: relevant[name] for name in STAGE_SETTINGS if name in relevant}
    current, models = (
        {name: restore_settings(name, section).model_dump(mode="json") for name, section in sections.items()}
        for sections in (stages, relevant["models"])
    )
    return {**relevant, **current, "models": models}


def replay(given: ReplayParameters) -> str:
    """Run every missing night of the prepared run, the earliest first, and return the plan as text.

    A night that fails ends the replay with its error; earlier nights stay done.
    """
    from oneclass.flows.pipeline import backfill

    run = prepared.get()
    assert run is not None
    missing = [day for day, run_id in _plan_nights(given, run).items() if run_id is None]
    for number, day in enumerate(missing, 1):
        logger.info("night %s, %d of %d", day, number, len(missing))
        token = prepared.set(replace(run, until=day))
        backfill(**vars(given.to_backfill(since=None, until=day)))
        prepared.reset(token)
    return _format_plan(given, _plan_nights(given, run))


def _format_plan(given: ReplayParameters, nights: Nights) -> str:
    """Format the nights as text, one line each."""
    done = sum(run_id is not None for run_id in nights.values())
    lines = [f"{day}  {f'run {run_id}' if run_id else 'missing'}" for day, run_id in nights.items()]
    counts = f"{len(nights)} nights, {done} done, {len(nights) - done} missing"
    return "\n".join([f"{given.dataset}, every {given.every}: {counts}", *lines])
