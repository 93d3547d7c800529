"""A home for logs."""

import pytest

from oneclass.tasks.stores.home import Home
from tests.conftest import write_tables


@pytest.fixture
def home(home: Home) -> Home:
    """The test's own home, with all tables."""
    write_tables(home)
    return home
