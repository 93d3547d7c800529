"""Numbers and sparklines of the pages."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oneclass.tasks.html import numbers
from oneclass.tasks.html.templates import HEIGHT, MARGIN, WIDTH, draw_sparkline


@given(st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-9), st.integers(1, 6))
def test_numbers_are_as_people_write_them_and_keep_their_digits(value, digits):
    for text in (numbers.format_significant(value, digits), numbers.format_fixed(value, digits)):
        assert re.fullmatch(r"\N{MINUS SIGN}?\d{1,3}(,\d{3})*(\.\d+)?", text)
    shown = float(numbers.format_significant(value, digits).replace(",", "").replace("\N{MINUS SIGN}", "-"))
    assert abs(shown - value) <= max(0.5 * 10 ** (np.floor(np.log10(abs(value) or 1)) - digits + 1), 1e-12) * (1 + 1e-6)


def test_numbers_in_a_few_words():
    assert numbers.format_significant(1180.2) == numbers.format_fixed(1180.2) == "1,180"
    assert (
        numbers.format_fixed(-0.00001, 4, signed=True) == "0.0000"
        and numbers.format_fixed(0.5, 2, signed=True) == "+0.50"
    )
    assert (
        numbers.format_p_value(0.01, 0.01) == "<\N{NO-BREAK SPACE}0.01" and numbers.format_p_value(0.02, 0.01) == "0.02"
    )


def polyline_points(drawn):
    """The points of each polyline."""
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall('<polyline points="(.*?)"', drawn)
    ]


def test_a_line_goes_from_edge_to_edge_with_gaps_that_keep_their_place():
    """Higher values lie higher; fewer than two values are no line."""
    ((first, middle, last),) = polyline_points(draw_sparkline([1.0, 3.0, 2.0], "three"))
    assert first == (MARGIN, HEIGHT - MARGIN) and middle == (WIDTH / 2, MARGIN) and last == (WIDTH - MARGIN, HEIGHT / 2)
    drawn = draw_sparkline([1.0, 2.0, None, 3.0, None, 2.0, 1.0], "seven", [0.1, 0.1, None, 0.1, None, 0.1, 0.1])
    assert [len(points) for points in polyline_points(drawn)] == [2, 2] and drawn.count('class="band"') == 3
    assert drawn.count("<circle") == 2  # the night between two gaps, and the last value
    assert polyline_points(drawn)[1][0][0] == round(MARGIN + 5 * (WIDTH - 2 * MARGIN) / 6, 1)
    assert not draw_sparkline([], "none") and not draw_sparkline([None, 1.0, None], "one")


def test_a_value_has_the_decimals_that_its_error_allows():
    def plain(value, error):
        return " ".join(numbers.format_with_error(value, error)).replace("\N{NO-BREAK SPACE}", " ")

    assert plain(0.45123, 0.01504) == "0.451 ± 0.015"
    assert plain(0.94137, 0.00198) == "0.9414 ± 0.0020"
    assert plain(12.345, 1.7) == "12.3 ± 1.7" and plain(1234.5, 170) == "1,234 ± 170"
    assert plain(0.5, None) == plain(0.5, 0.0) == "0.5000 "
