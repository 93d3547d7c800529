"""Figures of an earlier page are taken if they would be the same; else, or if they are damaged, they are drawn."""

import pytest

from oneclass.tasks.report import figures, plotting, report
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.report_rows import RUN, fill_tables


@pytest.fixture
def renders(monkeypatch):
    """The names of the panels that are rendered."""
    rendered = []
    monkeypatch.setattr(plotting, "render_svg", lambda panel: rendered.append(panel.name) or f"<svg>{panel.name}</svg>")
    return rendered


def list_panels(home):
    return {file.stem: file.read_text() for file in (home.report / "figures").glob("*.svg")}


def test_figures_are_drawn_again_only_if_their_rows_changed_or_the_store_is_damaged(tmp_path, renders, monkeypatch):
    home = Home(tmp_path, "small", Limits(threads=1, memory=1 << 30))
    with warehouse.open_warehouse(home) as connection:
        fill_tables(connection)
    report(home, RUN)
    first, page = list_panels(home), (home.report / "index.html").read_text()
    assert first.keys() == set(renders) and all(f"<svg>{name}</svg>" in page for name in renders)
    renders.clear()
    report(home, RUN)
    assert not renders and list_panels(home) == first and (home.report / "index.html").read_text() == page

    (home.report / figures.STORE).write_text((home.report / figures.STORE).read_text()[:-9])
    report(home, RUN)
    assert first.keys() == set(renders) and list_panels(home) == first
    renders.clear()
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update diagnostics.degrees set vertices = vertices + 1 where degree = 1")
    report(home, RUN)
    assert first.keys() == set(renders)
    renders.clear()
    monkeypatch.setattr(figures.checksums, "library_version", lambda name: "another")
    report(home, RUN)
    assert first.keys() == set(renders)
