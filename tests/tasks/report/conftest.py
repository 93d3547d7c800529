"""The report on the made-up warehouse, once for every test that only reads it."""

import pytest

from tasks.report import report
from tasks.stores import warehouse
from tasks.stores.home import Home, Limits
from tests.report_rows import RUN, fill


@pytest.fixture(scope="package")
def home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("report"), "small", Limits(threads=2, memory=1 << 30))
    with warehouse.connect(home) as connection:
        fill(connection)
    (home.report / "figures").mkdir(parents=True)
    (home.report / "figures" / "of-a-run-before.svg").write_text("<svg/>")
    report(home, RUN)
    return home


@pytest.fixture(scope="package")
def page(home):
    return (home.report / "index.html").read_text()
