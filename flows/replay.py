"""History night by night: a run for each night that is missing, on the events up to the end of that day."""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from flows.parameters import Backfill, Replay
from flows.settings import RunSettings, resolve
from tasks.errors import InputError
from tasks.stores import warehouse

logger = logging.getLogger(__name__)

DAYS = {"d": 1, "w": 7}
DECIDES_NOTHING = ("sources", "limits", "files", "ingest", "until")  # of a run's settings: the events are compared


@dataclass(frozen=True)
class ReplayedNight:
    """One day at whose end the events are trained on.

    Attributes:
        run_id: of the run that did it; None where it is missing.
    """

    day: date
    run_id: str | None


def days(since: date, until: date, every: str) -> list[date]:
    """The days from `since` to `until`, both included, at steps such as `1d` or `2w`.

    Raises:
        InputError: the step is not a number of days or weeks.
    """
    if not (step := re.fullmatch(r"([1-9]\d{0,3})([dw])", every)):
        raise InputError(f"--every {every}: write a number of days or weeks, such as 1d or 2w.")
    apart = int(step[1]) * DAYS[step[2]]
    return [since + timedelta(days) for days in range(0, (until - since).days + 1, apart)]


def nights(given: Replay) -> list[ReplayedNight]:
    """The nights that are asked for, and which runs of the warehouse did them.

    A run did a night if it came to its end with the same settings and trained on the events up to the end of that day,
    and no log was read in or deleted since that has such events.

    Raises:
        InputError: `--every` without a first and a last night, or with another step than days or weeks; or a wrong setting.
    """
    if given.every is None or given.since is None or given.until is None:
        raise InputError("--every and --dry-run: give --since DATE --until DATE --every STEP, such as --every 1d.")
    run = resolve(_of_one(given))
    done = dict(_done(run))
    return [ReplayedNight(day, done.get(day)) for day in days(given.since, given.until, given.every)]


def _done(run: RunSettings) -> Iterator[tuple[date, str]]:
    """Day and run of each backfill that stands, the newest of a day last."""
    if not run.home.warehouse.exists():
        return
    asked = _deciding(json.loads(json.dumps(run.describe(), default=str)))
    with warehouse.connect(run.home, read_only=True) as connection:
        stands = warehouse.select(connection, "runs/backfilled_until")
    for run_id, day, settings in stands.iter_rows():
        if _deciding(json.loads(settings)) == asked:
            yield day, run_id


def _deciding(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in DECIDES_NOTHING}


def _of_one(given: Replay, until: date | None = None) -> Backfill:
    """A single night's backfill: from the first event to the end of a day."""
    return given.as_backfill(since=None, until=until)


def replay(given: Replay) -> str:
    """Run every night that is missing, the earliest first; which are done, as text.

    A night that fails ends the replay with its error; the nights before it are done.

    Raises:
        InputError: as in `nights`.
    """
    if given.dry_run:
        return listed(given, nights(given))
    from flows import server
    from flows.sequence import backfill, check

    missing = [night.day for night in nights(given) if night.run_id is None]
    if missing:
        check(resolve(_of_one(given, missing[0])))
        with server.at_hand():
            for number, day in enumerate(missing, 1):
                logger.info("night %s, %d of %d", day, number, len(missing))
                backfill(**_of_one(given, day).model_dump())
    return listed(given, nights(given))


def listed(given: Replay, found: list[ReplayedNight]) -> str:
    """The nights as text, a line each."""
    done = sum(night.run_id is not None for night in found)
    head = f"{given.dataset}, every {given.every}: {len(found)} nights, {done} done, {len(found) - done} missing"
    return "\n".join([head, *(f"{one.day}  {f'run {one.run_id}' if one.run_id else 'missing'}" for one in found)])
