"""Add up the weights of a pair's events: of each kind its own, times the event's value, faded by its age."""

from datetime import date

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


def contract_parameters(settings: BinarizeSettings) -> dict[str, bool | list[str] | list[float]]:
    """Return the values by which the contracts add up weights, beside the settings themselves."""
    return {
        "adds_values": settings.adds_values,
        "kinds": list(settings.event_weights),
        "kind_weights": list(settings.event_weights.values()),
    }
