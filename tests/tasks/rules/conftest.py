"""A shop with rules, whose log is split and whose model is fitted once for all tests of this folder."""

import pytest

from tests.conftest import home_in
from tests.tasks.rules.test_lists import RuledShop


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> RuledShop:
    """A shop that has published nothing; tests publish in copies of it."""
    return RuledShop(home_in(tmp_path_factory.mktemp("built")))
