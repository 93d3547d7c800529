"""Replay history night by night: one run per missing night, on the events up to the end of that day."""

import json
import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from oneclass.flows.parameters import ReplayParameters
from oneclass.flows.run_hooks import check_home, hand_over, scan_sources
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.settings import STAGE_SETTINGS, restore_settings
from oneclass.tasks.stores import warehouse
from oneclass.tasks.terminal import format_grid

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
    parameters = given.to_backfill(since=None, until=None)
    if not given.dry_run:
        scan_sources(parameters)
    run = resolve_settings(parameters)
    nights = _plan_nights(given, run)
    if given.dry_run or all(nights.values()):
        return _format_plan(given, run, nights)
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
    done = dict(_completed_days(run))
    return {day: done.get(day) for day in _list_days(given)}


def _completed_days(run: RunSettings) -> Iterator[tuple[date, str]]:
    """Yield the day and run of each backfill that is still valid, the newest of a day last."""
    if not run.home.warehouse.exists():
        return
    described = json.loads(json.dumps(run.describe(), default=str))
    wanted = _relevant_settings(described, described)
    with warehouse.open_warehouse(run.home, read_only=True) as connection:
        completed = warehouse.select(connection, "runs/backfilled_until")
    for run_id, day, settings in completed.iter_rows():
        if _relevant_settings(json.loads(settings), described) == wanted:
            yield day, run_id


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


def replay(given: ReplayParameters, run: RunSettings) -> str:
    """Run every missing night, the earliest first, and return the plan as text.

    A night that fails ends the replay with its error; earlier nights stay done.
    """
    from oneclass.flows.pipeline import backfill

    missing = [day for day, run_id in _plan_nights(given, run).items() if run_id is None]
    for number, day in enumerate(missing, 1):
        logger.info("night %s, %d of %d", day, number, len(missing))
        with hand_over(replace(run, until=day)):
            backfill(**vars(given.to_backfill(since=None, until=day)))
    return _format_plan(given, run, _plan_nights(given, run))


def _format_plan(given: ReplayParameters, run: RunSettings, nights: Nights) -> str:
    """Format the nights as text, one line each, and the spread of next_events over the cuts of those that are done."""
    run_ids = [run_id for run_id in nights.values() if run_id]
    counts = f"{len(nights)} nights, {len(run_ids)} done, {len(nights) - len(run_ids)} missing"
    lines = [f"{day}  {f'run {run_id}' if run_id else 'missing'}" for day, run_id in nights.items()]
    return "\n".join([f"{given.dataset}, every {given.every}: {counts}", *lines, *_format_spread(run, run_ids)])


def _format_spread(run: RunSettings, run_ids: list[str]) -> list[str]:
    """Format what the ranked lists came to under next_events over the cuts of several nights."""
    if len(run_ids) < 2:
        return []
    metric = PROTOCOLS["next_events"].main_metric
    with warehouse.open_warehouse(run.home, read_only=True) as connection:
        lists = warehouse.select(connection, "runs/spread", metric=metric, run_ids=run_ids).to_dicts()
    rows = [
        [row["model"], "" if row["score"] == "score" else row["score"], f"{row['mean']:.4f} ± {row['spread']:.4f}"]
        + [f"{row['lowest']:.4f} to {row['highest']:.4f}", f"{row['cuts']}"]
        for row in lists
    ]
    header = ["model", "score", f"{metric}, mean ± deviation", "range", "cuts"]
    return ["", "next_events over these nights:", format_grid([header, *rows])] if rows else []
