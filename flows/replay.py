"""History night by night: a run for each night that is missing, on the events up to the end of that day."""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from oneclass.flows.parameters import BackfillParameters, ReplayParameters
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import warehouse

logger = logging.getLogger(__name__)

UNIT_DAYS = {"d": 1, "w": 7}
IRRELEVANT_SETTINGS = ("sources", "limits", "files", "ingest", "until")  # of a run's settings: the events are compared


@dataclass(frozen=True)
class ReplayedDay:
    """One day at whose end the events are trained on.

    Attributes:
        run_id: of the run that did it; None where it is missing.
    """

    day: date
    run_id: str | None


def list_days(since: date, until: date, every: str) -> list[date]:
    """The days from `since` to `until`, both included, at steps such as `1d` or `2w`.

    Raises:
        InputError: the step is not a number of days or weeks.
    """
    if not (step := re.fullmatch(r"([1-9]\d{0,3})([dw])", every)):
        raise InputError(f"--every {every}: write a number of days or weeks, such as 1d or 2w.")
    apart = int(step[1]) * UNIT_DAYS[step[2]]
    return [since + timedelta(days) for days in range(0, (until - since).days + 1, apart)]


def plan_replay(given: ReplayParameters) -> list[ReplayedDay]:
    """The nights that are asked for, and which runs of the warehouse did them.

    A run did a night if it came to its end with the same settings and trained on the events up to the end of that day,
    and no log was read in or deleted since that has such events.

    Raises:
        InputError: `--every` without a first and a last night, or with another step than days or weeks; or a wrong setting.
    """
    if given.every is None or given.since is None or given.until is None:
        raise InputError("--every and --dry-run: give --since DATE --until DATE --every STEP, such as --every 1d.")
    run = resolve_settings(_backfill_until(given))
    done = dict(_completed_days(run))
    return [ReplayedDay(day, done.get(day)) for day in list_days(given.since, given.until, given.every)]


def _completed_days(run: RunSettings) -> Iterator[tuple[date, str]]:
    """Day and run of each backfill that stands, the newest of a day last."""
    if not run.home.warehouse.exists():
        return
    asked = _relevant_settings(json.loads(json.dumps(run.describe(), default=str)))
    with warehouse.open_warehouse(run.home, read_only=True) as connection:
        stands = warehouse.select(connection, "runs/backfilled_until")
    for run_id, day, settings in stands.iter_rows():
        if _relevant_settings(json.loads(settings)) == asked:
            yield day, run_id


def _relevant_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in IRRELEVANT_SETTINGS}


def _backfill_until(given: ReplayParameters, until: date | None = None) -> BackfillParameters:
    """A single night's backfill: from the first event to the end of a day."""
    return given.to_backfill(since=None, until=until)


def replay(given: ReplayParameters) -> str:
    """Run every night that is missing, the earliest first; which are done, as text.

    A night that fails ends the replay with its error; the nights before it are done.

    Raises:
        InputError: as in `nights`.
    """
    if given.dry_run:
        return format_plan(given, plan_replay(given))
    from oneclass.flows import prefect_server
    from oneclass.flows.pipeline import backfill, check_run

    missing = [night.day for night in plan_replay(given) if night.run_id is None]
    if missing:
        check_run(resolve_settings(_backfill_until(given, missing[0])))
        with prefect_server.ensure_server():
            for number, day in enumerate(missing, 1):
                logger.info("night %s, %d of %d", day, number, len(missing))
                backfill(**_backfill_until(given, day).model_dump())
    return format_plan(given, plan_replay(given))


def format_plan(given: ReplayParameters, found: list[ReplayedDay]) -> str:
    """The nights as text, a line each."""
    done = sum(night.run_id is not None for night in found)
    head = f"{given.dataset}, every {given.every}: {len(found)} nights, {done} done, {len(found) - done} missing"
    return "\n".join([head, *(f"{one.day}  {f'run {one.run_id}' if one.run_id else 'missing'}" for one in found)])
