"""How the pages write numbers."""

import re
from datetime import date, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oneclass.tasks.html import numbers


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
    assert numbers.replace_minus("fell by -0.01, mrf-1, 2026-11-20") == "fell by \N{MINUS SIGN}0.01, mrf-1, 2026-11-20"


def test_times_in_a_few_words():
    plain = [
        numbers.format_time_span(timedelta(seconds=one)).replace(numbers.NO_BREAK_SPACE, " ")
        for one in (0, 59, 61, 3600, 86400, 2e5)
    ]
    assert plain == ["0 s", "59 s", "1 min", "1 h", "24 h", "2 days"]
    assert (
        numbers.format_day_range(date(1998, 2, 25), date(1998, 3, 26)).replace(numbers.NO_BREAK_SPACE, " ")
        == "25 Feb to 26 Mar 1998"
    )
    assert (
        numbers.format_day_range(date(2025, 12, 31), date(2026, 1, 2)).replace(numbers.NO_BREAK_SPACE, " ")
        == "31 Dec 2025 to 2 Jan 2026"
    )
