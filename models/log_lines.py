"""Parse the plain lines of a text log: compiled, at about the speed of reading it.

A line is plain if nothing about it needs a second look: as many fields as declared, ids without blanks around them, a
value in digits, a time in digits or as an ISO date. Every other line is left to the caller, who parses it by rules
without exceptions. A plain line gives what these rules give, bit by bit.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

LINES = 122_880
"""Lines that one call parses at most: a row group of DuckDB."""
MAX_PLAIN_ID_BYTES = 1000
MAX_MOVIE_BYTES = 32
NO_TIME = -(2**63)
BLANK, LINE_FEED, CARRIAGE_RETURN, HASH, MINUS, POINT, COLON = b" \n\r#-.:"
DIGIT_ZERO, DIGIT_NINE, LETTER_T, DELETE = b"09T\x7f"
MAX_DIGITS = 15
"""Of a value: below 2^53, so that dividing by a power of ten rounds once, as parsing the text does."""
POWERS_OF_TEN = 10.0 ** np.arange(MAX_DIGITS + 1)
FIRST_SECOND, LAST_SECOND = 1_000_000_000, 4_102_444_799
"""The seconds since 1970 of ten digits that are read as such; with 3, 6 or 9 digits more they are in smaller units."""
EPOCH_DAY = 719_468
"""Days from 0000-03-01 to 1970-01-01."""


class LineFormat(NamedTuple):
    """What a plain line looks like. Positions count from 0, and are -1 where a line has no such field.

    Attributes:
        fields: the number of a line's fields.
        user, item, value, time: the positions of these fields.
        header_lines: lines at the beginning of the log that are passed over.
        comments: whether lines that begin with `#` are left to the caller.
        movies: whether lines such as `17:` name the item of the lines below, as in the Netflix Prize's logs.
        numbers, dates: whether times may be digits since 1970, and ISO dates.
        low, high: values below and above are left to the caller.
        latest: times after it, in microseconds since 1970, are left to the caller.
    """

    fields: int
    user: int
    item: int
    value: int
    time: int
    header_lines: int
    comments: bool
    movies: bool
    numbers: bool
    dates: bool
    low: float
    high: float
    latest: int


class Texts(NamedTuple):
    """The pieces of text that lines are compared with, uint8 arrays.

    Attributes:
        delimiter: the separator of fields.
        header: a line that is left to the caller where it is repeated.
        missing: the ids that stand for a missing one, one after another.
        missing_starts: int64 (ids + 1,), where each of these begins.
    """

    delimiter: np.ndarray
    header: np.ndarray
    missing: np.ndarray
    missing_starts: np.ndarray


class Position(NamedTuple):
    """Where the next call goes on: the byte in the text, the line's number from 1, and the movie above it.

    Attributes:
        movie: uint8 (MAX_MOVIE_BYTES,), the digits of the movie; changed in place.
        movie_bytes: its length, 0 without one.
    """

    byte: int
    line: int
    movie: np.ndarray
    movie_bytes: int


class PlainLines(NamedTuple):
    """The arrays that a call fills, and how far.

    Attributes:
        user_ends, item_ends: int32 (LINES + 1,), the ends of the ids in `users` and `items`, after a 0.
        users, items: uint8 (bytes,), the ids one after another.
        values: float64 (LINES,).
        times: int64 (LINES,), microseconds since 1970.
        lines: int64 (LINES,), the numbers of the lines.
        others: int64 (LINES, 3), of the lines that are left to the caller, and of movies' headers: the first byte in
            the text, the end without the line end, and the number.
    """

    user_ends: np.ndarray
    users: np.ndarray
    item_ends: np.ndarray
    items: np.ndarray
    values: np.ndarray
    times: np.ndarray
    lines: np.ndarray
    others: np.ndarray


class Counts(NamedTuple):
    """How many of `PlainLines` are filled.

    Attributes:
        plain: events.
        others: rows of `PlainLines.others`.
        headers: those of them that are a movie's header.
    """

    plain: int
    others: int
    headers: int


def allocate_lines() -> PlainLines:
    """Allocate the arrays of a call; memory that is not written to costs nothing."""
    id_bytes = LINES * 64 + MAX_PLAIN_ID_BYTES
    return PlainLines(
        user_ends=np.zeros(LINES + 1, np.int32),
        users=np.empty(id_bytes, np.uint8),
        item_ends=np.zeros(LINES + 1, np.int32),
        items=np.empty(id_bytes, np.uint8),
        values=np.empty(LINES, np.float64),
        times=np.empty(LINES, np.int64),
        lines=np.empty(LINES, np.int64),
        others=np.empty((LINES, 3), np.int64),
    )


@njit(cache=True, nogil=True)
def parse_lines(text, end, position, form, texts, found):
    """Parse lines until the text ends or an array is full.

    Args:
        text: uint8 (bytes,), UTF-8 without NUL, whose lines end in LF or CRLF.
        end: the end of the last line to parse.
        position: of the first line.
        form: a `LineFormat`.
        texts: `Texts`.
        found: filled from its beginning.

    Returns:
        The `Position` of the next line, and the `Counts` of `found`.
    """
    # Arrays in local names: reading one from a tuple costs a reference count.
    users, user_ends, items, item_ends = found.users, found.user_ends, found.items, found.item_ends
    values, times, lines, others, movie = found.values, found.times, found.lines, found.others, position.movie
    max_user_bytes, max_item_bytes = len(users) - MAX_PLAIN_ID_BYTES, len(items) - MAX_PLAIN_ID_BYTES
    delimiter, header, missing, missing_starts = texts.delimiter, texts.header, texts.missing, texts.missing_starts
    width, starts = len(delimiter), np.empty(form.fields + 1, np.int64)
    byte, line, movie_bytes = position.byte, position.line, position.movie_bytes
    plain = left = headers = user_bytes = item_bytes = 0
    while (
        byte < end and plain < LINES and left < LINES and user_bytes <= max_user_bytes and item_bytes <= max_item_bytes
    ):
        first, number = byte, line
        stop, fields = _split_line(text, byte, end, delimiter, starts)
        byte, line = stop + 1, line + 1
        if stop > first and text[stop - 1] == CARRIAGE_RETURN:
            stop -= 1
        if stop == first or number <= form.header_lines:
            continue
        is_plain, value, time = False, 1.0, NO_TIME
        if form.movies and fields == 1:
            is_header = _is_movie(text, first, stop)
            if is_header:
                movie_bytes = stop - 1 - first
                for source in range(movie_bytes):
                    movie[source] = text[first + source]
                headers += 1
            elif _contains(text, first, stop, COLON):
                movie_bytes = 0  # a header that is not plain
        elif fields == form.fields and (movie_bytes > 0 or not form.movies):
            starts[fields] = stop + width
            is_plain, value, time = _parse_fields(text, starts, width, form, missing, missing_starts)
            is_plain = is_plain and not (form.comments and text[first] == HASH)
            if is_plain and stop - first == len(header):
                is_plain = not _is_at(text, first, stop, header)
        if is_plain:
            for source in range(starts[form.user], starts[form.user + 1] - width):
                users[user_bytes] = text[source]
                user_bytes += 1
            if form.movies:
                for source in range(movie_bytes):
                    items[item_bytes] = movie[source]
                    item_bytes += 1
            else:
                for source in range(starts[form.item], starts[form.item + 1] - width):
                    items[item_bytes] = text[source]
                    item_bytes += 1
            values[plain], times[plain], lines[plain] = value, time, number
            plain += 1
            user_ends[plain], item_ends[plain] = user_bytes, item_bytes
        else:
            others[left, 0], others[left, 1], others[left, 2] = first, stop, number
            left += 1
    return Position(min(byte, end), line, movie, movie_bytes), Counts(plain, left, headers)


@njit(cache=True, nogil=True, inline="always")
def _split_line(text, byte, end, delimiter, starts):
    """Write where the fields of a line start, and return where it ends and how many there are."""
    starts[0] = byte
    fields, width, first, declared = 1, len(delimiter), delimiter[0], len(starts)
    while byte < end and text[byte] != LINE_FEED:
        if text[byte] == first and (width == 1 or _is_at(text, byte, end, delimiter)):
            byte += width
            if fields < declared:
                starts[fields] = byte
            fields += 1
        else:
            byte += 1
    return byte, fields


@njit(cache=True, nogil=True, inline="always")
def _parse_fields(text, starts, width, form, missing, missing_starts):
    """Return whether the fields of a line are plain, its value and its time."""
    value, time = 1.0, NO_TIME
    if not _is_plain_id(text, starts[form.user], starts[form.user + 1] - width, missing, missing_starts):
        return False, value, time
    item = starts[form.item]
    if not form.movies and not _is_plain_id(text, item, starts[form.item + 1] - width, missing, missing_starts):
        return False, value, time
    if form.value >= 0:
        is_number, value = _parse_value(text, starts[form.value], starts[form.value + 1] - width)
        if not is_number or value < form.low or value > form.high:
            return False, value, time
    if form.time >= 0:
        time = _parse_time(text, starts[form.time], starts[form.time + 1] - width, form.numbers, form.dates)
    return form.time < 0 or NO_TIME < time <= form.latest, value, time


@njit(cache=True, nogil=True)
def _is_at(text, byte, end, piece):
    """Whether the text goes on with a piece."""
    if byte + len(piece) > end:
        return False
    for offset in range(len(piece)):
        if text[byte + offset] != piece[offset]:
            return False
    return True


@njit(cache=True, nogil=True)
def _contains(text, first, stop, character):
    for byte in range(first, stop):
        if text[byte] == character:
            return True
    return False


@njit(cache=True, nogil=True)
def _is_movie(text, first, stop):
    """Whether a line is a movie's number and a colon."""
    if stop - first < 2 or stop - 1 - first > MAX_MOVIE_BYTES or text[stop - 1] != COLON:
        return False
    for byte in range(first, stop - 1):
        if text[byte] < DIGIT_ZERO or text[byte] > DIGIT_NINE:
            return False
    return True


@njit(cache=True, nogil=True)
def _is_plain_id(text, first, stop, missing, missing_starts):
    """Whether a field is an id as it stands: neither blank, padded, a whole float, long nor a missing id."""
    if stop <= first or stop - first > MAX_PLAIN_ID_BYTES or text[first] <= BLANK or text[stop - 1] <= BLANK:
        return False
    for byte in range(first, stop):
        character = text[byte]
        if character < BLANK or character == DELETE:
            return False
        if character == POINT and byte + 1 < stop and text[byte + 1] == DIGIT_ZERO:
            return False
    for number in range(len(missing_starts) - 1):
        missing_from, missing_stop = missing_starts[number], missing_starts[number + 1]
        is_candidate = missing_stop - missing_from == stop - first and text[first] == missing[missing_from]
        if is_candidate and _is_at(text, first, stop, missing[missing_from:missing_stop]):
            return False
    return True


@njit(cache=True, nogil=True)
def _parse_value(text, first, stop):
    """Return whether a field is `-digits.digits`, without sign or decimals as well, and the nearest double."""
    negative = first < stop and text[first] == MINUS
    byte = first + 1 if negative else first
    whole, digits, decimals, after_point = 0, 0, 0, False
    while byte < stop:
        character = text[byte]
        if DIGIT_ZERO <= character <= DIGIT_NINE:
            whole = 10 * whole + (character - DIGIT_ZERO)
            digits += 1
            decimals += after_point
            if digits > MAX_DIGITS:
                return False, 0.0
        elif character == POINT and not after_point and digits > 0:
            after_point = True
        else:
            return False, 0.0
        byte += 1
    if digits == 0 or (after_point and decimals == 0):
        return False, 0.0
    value = whole / POWERS_OF_TEN[decimals]
    return True, -value if negative else value


@njit(cache=True, nogil=True)
def _parse_time(text, first, stop, numbers, dates):
    """Return the microseconds since 1970 of a field, `NO_TIME` where it is not plain."""
    size = stop - first
    if dates and (size == 10 or size == 19) and text[first + 4] == MINUS:
        return _parse_date(text, first, size)
    if not numbers or (size != 10 and size != 13 and size != 16 and size != 19):
        return NO_TIME
    number = _parse_digits(text, first, stop)
    if number < 0:
        return NO_TIME
    per_second = 1
    for _ in range(size - 10):
        per_second *= 10
    if number < FIRST_SECOND * per_second or number // per_second > LAST_SECOND:
        return NO_TIME
    return number * (1_000_000 // per_second) if per_second <= 1_000_000 else number // (per_second // 1_000_000)


@njit(cache=True, nogil=True)
def _parse_date(text, first, size):
    """Return the microseconds of `YYYY-MM-DD`, or of `YYYY-MM-DD HH:MM:SS` with a blank or T."""
    year, month = _parse_digits(text, first, first + 4), _parse_digits(text, first + 5, first + 7)
    day = _parse_digits(text, first + 8, first + 10)
    if text[first + 7] != MINUS or year < 1000 or month < 1 or month > 12 or day < 1:
        return NO_TIME
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 28 + is_leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    if day > days:
        return NO_TIME
    second = 0
    if size == 19:
        hour, minute = _parse_digits(text, first + 11, first + 13), _parse_digits(text, first + 14, first + 16)
        second = _parse_digits(text, first + 17, first + 19)
        has_form = (text[first + 10] == BLANK or text[first + 10] == LETTER_T) and (
            text[first + 13] == COLON and text[first + 16] == COLON
        )
        if not has_form or not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
            return NO_TIME
        second += 3600 * hour + 60 * minute
    # Years that begin in March, so that a leap day is the last: 153 days in five months.
    shifted_year, shifted_month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * shifted_year + shifted_year // 4 - shifted_year // 100 + shifted_year // 400
    days += (153 * shifted_month + 2) // 5 + day - 1 - EPOCH_DAY
    return 1_000_000 * (86_400 * days + second)


@njit(cache=True, nogil=True)
def _parse_digits(text, first, stop):
    """Return the number that digits are, -1 where another character is among them."""
    number = 0
    for byte in range(first, stop):
        if text[byte] < DIGIT_ZERO or text[byte] > DIGIT_NINE:
            return -1
        number = 10 * number + (text[byte] - DIGIT_ZERO)
    return number
