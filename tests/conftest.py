"""Fixtures that every room uses: a home in a temporary folder, and a warehouse filled with events."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tasks import warehouse
from tasks.home import Home, Limits

REAL_LOGS = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "var", "small", Limits(threads=2, memory=1 << 30))


@pytest.fixture
def log_events(home: Home) -> Callable[..., None]:
    """Put (user, item, value) events into `raw.events`, one file a call, lines numbered from 1."""

    def log(events: Sequence[tuple], file_id: int = 1) -> None:
        with warehouse.connect(home) as connection:
            columns = list(
                zip(
                    *[(str(user), str(item), float(value), (when or [None])[0]) for user, item, value, *when in events],
                    strict=True,
                )
            )
            kinds = (pa.string(), pa.string(), pa.float64(), pa.timestamp("us"))
            names = ("user_id", "item_id", "value", "occurred_at")
            incoming = pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})
            connection.register("incoming", incoming)
            connection.execute(f"insert into raw.events select *, {file_id}, row_number() over () from incoming")
            connection.unregister("incoming")
            connection.execute(
                "insert into operations.log_files values (?, ?, ?, 1, ?, 0, now()::timestamp)",
                [file_id, f"log-{file_id}", f"sha-{file_id}", len(events)],
            )

    return log
