"""The stage: select likes and active users, and write the tables of edges."""

import logging
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import duckdb

from oneclass import sql
from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.aggregate import FunnelStep
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import resources, stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.stores.warehouse import table_digest

logger = logging.getLogger(__name__)

TABLES = ("indexed.users", "indexed.items", "indexed.interactions", "indexed.observed_negatives")


@dataclass(frozen=True)
class Binarized:
    """Counts of the rows of `curated.interactions`."""

    edges: int
    users: int
    items: int


def binarize(
    home: Home, settings: BinarizeSettings, run_id: str, *, since: date | None = None, until: date | None = None
) -> Binarized:
    """Rewrite `curated.interactions` from `raw.events`, unless it was made from the same events with the same settings.

    Args:
        since: use events from the start of this day on.
        until: use events up to the end of this day.

    Raises:
        InputError: no edge is left, or `since` or `until` is given and the logs have no times.
    """
    parameters = {**settings.model_dump(), "since": since, "until": until}
    with stages.run_stage(home, run_id, "binarize", parameters) as connection:
        cache = StageCache(
            connection,
            "binarize",
            [Path(__file__).parent],
            reads=table_digest(connection, "raw.events"),
            parameters=parameters,
            tables=TABLES,
        )
        steps = aggregate.count_event_steps(connection, settings, since, until)
        if stored := cache.lookup():
            result, edge_step = Binarized(**stored["sizes"]), FunnelStep(*stored["step"])
        else:
            result, edge_step = rewrite_interactions(connection, settings, since, until)
            cache.store({"sizes": asdict(result), "step": edge_step})
        steps.append(edge_step)
        aggregate.store_steps(connection, run_id, steps)
    for line in aggregate.format_steps(steps):
        logger.info("%s", line)
    logger.info("%s edges, %s users x %s items", f"{result.edges:,}", f"{result.users:,}", f"{result.items:,}")
    return result


def rewrite_interactions(
    connection: duckdb.DuckDBPyConnection, settings: BinarizeSettings, since: date | None, until: date | None
) -> tuple[Binarized, FunnelStep]:
    """Rewrite the tables of `indexed` from `raw.events`; returns the sizes and the step from events to likes.

    Raises:
        InputError: as `binarize`.
    """
    if since or until:
        _require_times(connection, "--since and --until need")
    if settings.half_life_days is not None:
        _require_times(connection, "half_life_days needs")
    values = {"threshold": settings.threshold, "since": since, "until": until}
    if settings.adds_values:
        aggregate.create_weighted_events(connection, settings, since, until)
        connection.execute(sql.statement("binarize/weighted_pairs"), {"threshold": settings.threshold})
        likes, like_values = "from weighted_pairs", None
    else:
        likes, like_values = sql.statement("binarize/events_by_value", comparison=">="), values
    for side in ("user", "item"):
        connection.execute(sql.statement("binarize/codes", side=side, likes=f"({likes})"), like_values)
    for table in TABLES:
        connection.execute(f"delete from {table}")
    for side in ("user", "item"):
        connection.execute(sql.statement("binarize/vertices", side=side))
    if settings.adds_values:
        connection.execute(sql.statement("binarize/weighted_edges"), {"never": aggregate.MIN_TIME})
        _insert_folded(connection)
    else:
        for edges in aggregate.aggregate_edges(connection, values, resources.free_memory() // 3):
            connection.register("folded", edges)
            _insert_folded(connection)
            connection.unregister("folded")
    edge_step = _count_likes(connection, settings)
    if settings.explicit_negatives:
        below, below_values = "from weighted_events", None
        if not settings.adds_values:
            below, below_values = sql.statement("binarize/events_by_value", comparison="<"), values
        tables = {"users": "indexed.users", "items": "indexed.items", "likes": "indexed.interactions"}
        negatives = sql.statement("binarize/observed_negatives", events=f"({below})", **tables)
        connection.execute(f"insert into indexed.observed_negatives {negatives}", below_values)
    # one row: how many edges, users and items the observed graph has
    sizes = """select
        (select count(*) from indexed.interactions) as edges,
        (select count(*) from indexed.users) as users,
        (select count(*) from indexed.items) as items"""
    result = Binarized(**warehouse.query(connection, sizes).row(0, named=True))
    if result.edges == 0:
        raise InputError(_explain_empty_result(connection, settings, since, until))
    warehouse.drop_temporary(connection)
    return result, edge_step


def _count_likes(connection: duckdb.DuckDBPyConnection, settings: BinarizeSettings) -> FunnelStep:
    events = (
        "count(*) from weighted_events" if settings.adds_values else "coalesce(sum(events), 0)::bigint from user_codes"
    )
    # one row: how many events are likes, or have weights, of how many pairs, users and items
    sizes = f"""select
        (select {events}),
        (select count(*) from indexed.interactions),
        (select count(*) from user_codes), (select count(*) from item_codes)"""
    return aggregate.count_pairs(settings, *warehouse.fetch_row(connection, sizes))


def _insert_folded(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(sql.statement("binarize/interactions"), {"never": aggregate.MIN_TIME})


def _require_times(connection: duckdb.DuckDBPyConnection, need: str) -> None:
    query = "select count(*) - count(occurred_at), count(*) from raw.events"
    without, events = warehouse.fetch_row(connection, query)
    if events and without == events:
        raise InputError(f"{need} the times of events, and these logs have none; leave them out.")
    if without:
        logger.warning("%s events have no time, which %s; they are left out", f"{without:,}", need)


def _explain_empty_result(
    connection: duckdb.DuckDBPyConnection, settings: BinarizeSettings, since: date | None, until: date | None
) -> str:
    events, highest = warehouse.fetch_row(connection, "select count(*), max(value) from raw.events")
    if events == 0:
        return "binarize: the logs hold no event. Give a log with at least one."
    if settings.adds_values:
        # one row per pair with an event that counts
        sums = "select sum(weight)::double as total from weighted_events group by user_id, item_id"
        highest = warehouse.fetch_row(connection, f"select max(total) from ({sums})")[0]
        return (
            f"binarize: no pair of a user and an item reaches binarize.threshold = {settings.threshold:g}: the weights "
            f"of its events add up to {highest or 0:g} at most. Lower it, or raise weights under [events]."
        )
    if since or until:
        inside, first, last = warehouse.fetch_row(
            connection,
            "select count(*) filter ((occurred_at >= $since or $since is null) and (occurred_at::date <= $until or "
            "$until is null)), min(occurred_at)::date, max(occurred_at)::date from raw.events",
            {"since": since, "until": until},
        )
        period = " and ".join([f"from {since} on"] * bool(since) + [f"up to {until}"] * bool(until))
        if not inside:
            return (
                f"binarize: of {events:,} events none lies {period}: they go from {first} to {last} (UTC). Widen "
                "--since and --until."
            )
        events, period = inside, f" {period}"
    else:
        period = ""
    return (
        f"binarize: none of {events:,} events{period} has a value of at least binarize.threshold = "
        f"{settings.threshold:g} (the highest of all is {highest:g}). Lower it."
    )


binarize_task = stage_task(binarize)
