"""What partitions must be brought together for: the numbers of users and items, and the items that training users have.

One machine numbers in the order of first appearance in the logs. A user lies in one partition, which sends the place where it
first appears, 8 bytes, and is sent its number, 4 bytes; of an item every partition that has it sends place and id.
"""

import duckdb

from benchmarks.partitioned.layout import Layout

USERS = """
copy (
    with numbered as (
        select user_index as local_index, filename,
            (row_number() over (order by position) - 1)::integer as user_index
        from read_parquet('{given}', filename = true)
    )
    select local_index, user_index from numbered where filename = '{own}'
) to '{file}' (format parquet)
"""
ITEMS = """
copy (
    with first as (select item_id, min(position) as position from read_parquet('{given}') group by item_id)
    select item_id, (row_number() over (order by position, item_id) - 1)::integer as item_index from first
) to '{file}' (format parquet)
"""
TRAIN_ITEMS = """
copy (
    select item_index, (row_number() over (order by item_index) - 1)::integer as item_column
    from (select distinct item_index from read_parquet('{given}'))
) to '{file}' (format parquet)
"""


def number(layout: Layout) -> None:
    """The numbers of users, a file a partition, and of items."""
    given = layout.file("first-users", "*")
    for part in range(layout.parts):
        own = layout.file("first-users", part)
        duckdb.execute(USERS.format(given=given, own=own, file=layout.file("users", part)))
    duckdb.execute(ITEMS.format(given=layout.file("first-items", "*"), file=layout.file("items")))


def train_items(layout: Layout) -> None:
    """Items that a training user of any partition has."""
    duckdb.execute(TRAIN_ITEMS.format(given=layout.file("first-train-items", "*"), file=layout.file("train-items")))


def sizes(layout: Layout) -> dict[str, int]:
    """Bytes of the files that went between workers, by what they are."""

    def size(*patterns: str) -> int:
        return sum(file.stat().st_size for pattern in patterns for file in layout.folder.glob(pattern))

    back = layout.parts * size("items-all.parquet")
    return {
        "events to their partitions": size("events/*/*/*.parquet"),
        "places of users, and their numbers back": size("first-users-*.parquet", "users-*.parquet"),
        "places of items, and their numbers back": size("first-items-*.parquet") + back,
        "items of training users, and back": size("first-train-items-*.parquet")
        + layout.parts * size("train-items-all.parquet"),
    }
