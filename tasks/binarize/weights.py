"""Add up the weights of a pair's events: of each kind its own, times the event's value, faded by its age."""

from datetime import date
from typing import Any, NamedTuple

import duckdb

from oneclass import sql
from oneclass.tasks.binarize.settings import BinarizeSettings


def create_weighted_events(
    connection: duckdb.DuckDBPyConnection, settings: BinarizeSettings, since: date | None, until: date | None
) -> None:
    """Create the temporary table `weighted_events` of a period."""
    values = {
        "kinds": list(settings.event_weights),
        "kind_weights": list(settings.event_weights.values()),
        "half_life_days": settings.half_life_days,
        "since": since,
        "until": until,
    }
    connection.execute(sql.statement("binarize/weighted_events"), values)


class LikeSelection(NamedTuple):
    """The settings by which `binarize` selected likes, and the period that they are of."""

    likes: BinarizeSettings = BinarizeSettings.model_validate({})
    since: date | None = None
    until: date | None = None


def select_like_events(connection: duckdb.DuckDBPyConnection, selection: LikeSelection) -> tuple[str, dict[str, Any]]:
    """Return the relation of the events that count, with their position and weight, and its parameters."""
    likes, since, until = selection
    if likes.adds_values:
        create_weighted_events(connection, likes, since, until)
        return "(from weighted_events)", {}
    statement = sql.statement("binarize/events_at_threshold")
    return f"({statement})", {"threshold": likes.threshold, "since": since, "until": until}
