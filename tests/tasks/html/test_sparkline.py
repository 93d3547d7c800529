"""The small line: what it draws of values, of errors, and of nights without a value."""

import re

from oneclass.tasks.html.sparkline import HEIGHT, MARGIN, WIDTH, draw_sparkline


def lines(drawn):
    """The points of each polyline."""
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall('<polyline points="(.*?)"', drawn)
    ]


def test_a_line_goes_from_edge_to_edge_and_higher_values_lie_higher():
    ((first, middle, last),) = lines(draw_sparkline([1.0, 3.0, 2.0], "three"))
    assert first == (MARGIN, HEIGHT - MARGIN) and middle == (WIDTH / 2, MARGIN) and last == (WIDTH - MARGIN, HEIGHT / 2)


def test_a_night_without_a_value_is_a_gap_that_keeps_its_place():
    drawn = draw_sparkline([1.0, 2.0, None, 3.0, None, 2.0, 1.0], "seven", [0.1, 0.1, None, 0.1, None, 0.1, 0.1])
    assert [len(points) for points in lines(drawn)] == [2, 2] and drawn.count('class="band"') == 3
    assert drawn.count("<circle") == 2  # the night between two gaps, and the last value
    assert lines(drawn)[1][0][0] == round(MARGIN + 5 * (WIDTH - 2 * MARGIN) / 6, 1)


def test_fewer_than_two_values_are_no_line():
    assert not draw_sparkline([], "none") and not draw_sparkline([None, 1.0, None], "one")
