"""A real Prefect server for the flows' tests, once a session, and small logs on disk."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.testing.utilities import prefect_test_harness

import flows  # noqa: F401  (its settings of Prefect come first)


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """The API's address; without heartbeats, which add a second to every flow run."""
    with (
        prefect_test_harness(server_startup_timeout=180),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield PREFECT_API_URL.value()


@pytest.fixture(scope="session")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MovieLens csv: 120 people of two tastes rate 40 films, 1 to 5 stars."""
    generator = np.random.default_rng(7)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(120):
        for film in sorted(generator.choice(40, size=14, replace=False)):
            likes = film % 2 == user % 2
            lines.append(f"{user + 1},{film + 1},{generator.integers(*((4, 6) if likes else (1, 4)))},{10**9 + user}")
    path = tmp_path_factory.mktemp("logs") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
