"""The report on the made-up warehouse, once for every test that only reads it."""

import pytest


@pytest.fixture(scope="session")
def home(reported):
    return reported


@pytest.fixture(scope="session")
def page(home):
    return (home.report / "index.html").read_text()
