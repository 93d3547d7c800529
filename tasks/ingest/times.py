"""The times of a log: recognise their form in a sample, and write the SQL that converts them to UTC.

Times are instants. Numbers are seconds, milliseconds, microseconds or nanoseconds since 1970, or eight-digit dates,
where their size leaves no doubt. Text is ISO 8601, or a date whose order of day and month the sample shows. Text
without a zone is in the data set's `timezone`. Everything else needs the data set's `time_format`.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from oneclass.tasks.datasets import TIME_UNITS, Dataset
from oneclass.tasks.errors import InputError

FIRST_SECOND, LAST_SECOND = 788_918_400, 4_102_444_799
"""1995 to 2099: a number in this range, or in this range in a smaller unit, is an instant; ticks of .NET are not."""
LATE_SECOND = 946_684_800
"""Where all times lie before 2000, numbers may count from another year, such as 2001."""
FIRST_DATE, LAST_DATE = 1900_01_01, 2099_12_31
NUMBER = re.compile(r"\s*-?\d+(?:\.\d+)?\s*")
NAIVE_ISO = r"\s*\d{4}([-/])\d{1,2}[-/]\d{1,2}([ T]+\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?\s*"
ZONED_ISO = (
    r"\s*\d{4}[-/]\d{1,2}[-/]\d{1,2}[ T]+\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?\s*"
    r"([+-]\d\d(:?\d\d)?|[A-Za-z]+(/[A-Za-z_]+)*([+-]\d+)?)\s*"
)
ISO = re.compile(rf"(?!.*[AaPp][Mm]\s*$)(({NAIVE_ISO})|({ZONED_ISO}))")  # am and pm are no zones
NUMERIC_DATE = re.compile(
    r"\s*(\d{1,4})([-./])(\d{1,2})\2(\d{4}|\d{1,2})(?:,?[ T]+\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\s*([AaPp][Mm])?)?\s*"
)
CLOCKS = ("%H:%M:%S.%f", "%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%I:%M:%S%p", "%I:%M%p")
NAMED_MONTHS = ("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%y", "%Y%m%d")
WHOLE_FORMATS = ("%Y%m%dT%H%M%S", "%a %b %d %H:%M:%S %Y")
"""Dates with their time of day: ISO 8601 without marks, and that of C's `ctime`."""
GREENWICH = re.compile(r" (GMT|UTC|UT)\s*$")
ZONED_FORMATS = (
    *(f"{day}%d %b %Y %H:%M{seconds} %z" for day in ("%a, ", "") for seconds in (":%S", "")), "%a %b %d %H:%M:%S %z %Y",
)  # fmt: skip
"""Those of mail (RFC 2822) and of Twitter."""
MISSING = "1970-01-01"
CLOCK = re.compile(r"\s*\d{1,2}:\d\d(:\d\d(\.\d+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*")
DATE = re.compile(
    r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|(19|20)\d{6}|\d{1,2}([-/.])\d{1,2}\4\d{2,4}|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{2,4})"
    r"([ T]00:00:00(\.0+)?)?\s*"
)
MIDNIGHT = re.compile(r"[ T]00:00:00(\.0+)?$")
MIN_MATCH = 0.5
"""A form is recognised if at least this share of the sampled times has it; the others may be damaged."""


def detect_time_formats(path: str, times: Sequence[str], dataset: Dataset) -> tuple[str, ...]:
    """Detect the form of a log's times in a sample.

    Returns:
        `time_format` of the data set's file if declared, formats of `strptime`, or nothing for numbers and ISO 8601. A
        date's format is the last, after those with a time of day.

    Raises:
        InputError: the numbers may be of several units, or the day may be the month.
    """
    filled = [time for time in times if time.strip() and time.strip() not in dataset.missing_ids]
    if times and not filled:
        raise InputError(
            f"{path}: its times are empty{f' ({times[0].strip()!r})' if times[0].strip() else ''}. Leave them out "
            "in the data set's file, or name another column of times:\n\n[columns]\ntime = []"
        )
    declared = [dataset.time_format] if isinstance(dataset.time_format, str) else list(dataset.time_format)
    if declared:
        has_clock = declared[0] in TIME_UNITS or any("%H" in text or "%I" in text for text in declared)
        return tuple(declared) if has_clock or len(declared) > 1 else _with_clocks(declared[0])
    if are_clocks(filled):
        raise InputError(
            f"{path}: its times are times of day without a date, such as {filled[0].strip()!r}. Leave them out in the "
            "data set's file, or name the column of the date as `time` and this one as `clock`:"
            "\n\n[columns]\ntime = []"
        )
    numbers = [float(time) for time in filled if NUMBER.fullmatch(time)]
    if len(numbers) > MIN_MATCH * len(filled):
        if sum(map(_is_certain, numbers)) < MIN_MATCH * len(numbers):
            raise InputError(_explain_numbers(path, numbers))
        return ()
    if not filled or sum(ISO.fullmatch(time) is not None for time in filled) >= MIN_MATCH * len(filled):
        return ()
    if len(dates := [match for time in filled if (match := NUMERIC_DATE.fullmatch(time))]) >= MIN_MATCH * len(filled):
        return _with_clocks(_date_format(path, dates))
    zone = ("%Y%m%dT%H%M%SZ",) if dataset.timezone == "UTC" else ()  # its Z would be taken for text
    for whole_format in (*WHOLE_FORMATS, *zone):
        if sum(_is_parsed(time, (whole_format,)) for time in filled) >= MIN_MATCH * len(filled):
            return (whole_format,)
    if sum(_is_parsed(time, ZONED_FORMATS) for time in filled) >= MIN_MATCH * len(filled):
        return ZONED_FORMATS
    for date_format in NAMED_MONTHS:
        formats = _with_clocks(date_format)
        if sum(_is_parsed(time, formats) for time in filled) >= MIN_MATCH * len(filled):
            return formats
    return ()


def are_clocks(texts: Sequence[str]) -> bool:
    """Whether most texts that are not empty are times of day without a date."""
    return _most_match(CLOCK, texts)


def are_times(texts: Sequence[str]) -> bool:
    """Whether most texts that are not empty are dates, with a time of day or without."""
    return _most_match(ISO, texts) or _most_match(NUMERIC_DATE, texts) or _most_match(DATE, texts)


def _most_match(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    filled = [text for text in texts if text.strip()]
    return bool(filled) and sum(pattern.fullmatch(text) is not None for text in filled) > MIN_MATCH * len(filled)


def describe_doubts(times: Sequence[str]) -> list[str]:
    """Return a sentence on each thing that sampled times suggest, which are kept as they are."""
    if len(times) > 1 and len(set(times)) == 1:
        return [f"all times are equal, {times[0].strip()}: they give no order"]
    missing = sum(time.strip().startswith(MISSING) for time in times)
    if missing:
        return [f"{missing / len(times):.0%} of the times are {MISSING}, which stands for a missing one: rejected"]
    numbers = [float(time) for time in times if NUMBER.fullmatch(time)]
    if numbers and FIRST_SECOND <= min(numbers) <= max(numbers) < LATE_SECOND:
        return ["all times lie before 2000: numbers that count from 2001 need another `time_format`, or a query"]
    return []


def join_clocks(dates: Sequence[str], clocks: Sequence[str]) -> list[str]:
    """Join dates and times of day, as `join_clock` does."""
    return [
        f"{MIDNIGHT.sub('', date.strip())} {clock.strip()}".strip() for date, clock in zip(dates, clocks, strict=True)
    ]


def join_clock(date: str, clock: str) -> str:
    """Return the SQL expression of a time from those of its date, maybe with a midnight, and of its time of day."""
    return f"trim(concat_ws(' ', regexp_replace(trim({date}), '{MIDNIGHT.pattern}', ''), trim({clock})))"


def localise(timestamp: str, timezone: str) -> str:
    """Return the SQL expression of an instant in UTC from a timestamp in a time zone."""
    return timestamp if timezone == "UTC" else f"({timestamp} at time zone '{timezone}') at time zone 'UTC'"


def to_utc(formats: Sequence[str], timezone: str) -> str:
    """Return the SQL expression of an instant in UTC from the text `time`; null where the text is no time.

    Args:
        formats: of `detect_time_formats`.
        timezone: of text without a zone.
    """
    # DuckDB reads 5_0 as 50 and 0x10 as 16.
    number = "if(regexp_matches(time, '[_xXbB]'), null, try_cast(time as {type}))"
    whole, decimal = number.format(type="bigint"), number.format(type="double")
    if formats and formats[0] in TIME_UNITS:
        if formats[0] == "excel":
            day = f"timestamp '1899-12-30' + to_milliseconds((nullif({decimal}, 0) * 86400000)::bigint)"
            return f"case when {decimal} between 1 and 2958465 then {localise(f'({day})', timezone)} end"
        per_second = TIME_UNITS[formats[0]]
        fraction = f"make_timestamp(({decimal} / {per_second} * 1e6)::bigint)"
        exact = f"make_timestamp({_to_microseconds(whole, per_second)})"
        in_range = f"abs({decimal}) < {253402300800 * per_second}"
        return f"case when {in_range} then if(contains(time, '.'), {fraction}, {exact}) end"
    if formats and "%z" in formats[0]:
        patterns = ", ".join(f"'{text}'" for text in formats)
        offset = f"regexp_replace(trim(time), '{GREENWICH.pattern}', ' +0000')"
        return f"try_strptime({offset}, [{patterns}]) at time zone 'UTC'"
    if formats:
        patterns = ", ".join("'" + text.replace("'", "''") + "'" for text in formats)
        return localise(f"try_strptime(time, [{patterns}])", timezone)
    units = "\n".join(
        f"when {whole} between {FIRST_SECOND * scale} and {LAST_SECOND * scale + scale - 1}"
        f" then make_timestamp({_to_microseconds(whole, scale)})"
        for scale in (1, 1_000, 1_000_000, 1_000_000_000)
    )
    day = localise("try_strptime(time, '%Y%m%d')", timezone)
    naive = localise("try_cast(time as timestamp)", timezone)
    # DuckDB reads no blank before an offset.
    close_offset = r"regexp_replace(time, ' +([+-])(\d\d):?(\d\d)? *$', '\1\2\3')"
    # Seconds in ten digits, the common case, cheaply.
    seconds = "try_cast(time as bigint)"
    in_seconds = f"{seconds} between 1000000000 and {LAST_SECOND} and strlen(time) = 10 and not contains(time, '_')"
    return f"""case
        when {in_seconds} and time >= '1'
            then make_timestamp({seconds} * 1000000)
        when {whole} is not null then case
            when contains(time, '.') and {whole} between {FIRST_SECOND} and {LAST_SECOND}
                then make_timestamp(({decimal} * 1e6)::bigint)
            {units}
            when {whole} between {FIRST_DATE} and {LAST_DATE} then {day}
        end
        when regexp_full_match(time, '{NAIVE_ISO}') then {naive}
        when regexp_full_match(time, '{ZONED_ISO}') then try_cast({close_offset} as timestamptz) at time zone 'UTC'
    end"""


def _to_microseconds(number: str, per_second: int) -> str:
    return (
        f"{number} * {1_000_000 // per_second}" if per_second <= 1_000_000 else f"{number} // {per_second // 1_000_000}"
    )


def _is_certain(number: float) -> bool:
    in_seconds = any(FIRST_SECOND * scale <= number < (LAST_SECOND + 1) * scale for scale in (1, 10**3, 10**6, 10**9))
    return in_seconds or (FIRST_DATE <= number <= LAST_DATE and _is_parsed(f"{number:.0f}", ("%Y%m%d",)))


def _is_parsed(time: str, formats: Sequence[str]) -> bool:
    for text in formats:
        try:
            datetime.strptime(GREENWICH.sub(" +0000", time.strip()), text)
        except ValueError:
            continue
        return True
    return False


def _with_clocks(date_format: str) -> tuple[str, ...]:
    return (
        *(f"{date_format} {clock}" for clock in CLOCKS),
        *(f"{date_format}T{clock}" for clock in CLOCKS[:3]),
        date_format,
    )


def _date_format(path: str, dates: Sequence[re.Match[str]]) -> str:
    """Return the format of dates in numbers, from the ranges of their parts."""
    separator = dates[0][2]
    if sum(len(date[1]) == 4 for date in dates) >= MIN_MATCH * len(dates):
        return separator.join(("%Y", "%m", "%d"))
    year = "%Y" if sum(len(date[4]) == 4 for date in dates) >= MIN_MATCH * len(dates) else "%y"
    day_first, month_first = sum(int(date[1]) > 12 for date in dates), sum(int(date[3]) > 12 for date in dates)
    if separator == "." or day_first > month_first:
        return separator.join(("%d", "%m", year))
    if month_first > day_first:
        return separator.join(("%m", "%d", year))
    example = dates[0][0].strip()
    raise InputError(
        f"{path}: its times may name the day or the month first, as {example!r}. State which in the data set's "
        "file:\n\n"
        f'time_format = "{separator.join(("%d", "%m", year))}"    # or "{separator.join(("%m", "%d", year))}"'
    )


def _explain_numbers(path: str, numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    if 1900 <= low and high <= 2100:
        guess, what = "%Y", "years"
    elif 25_569 <= low and high <= 73_415:
        guess, what = "excel", "Excel's day numbers"
    else:
        guess, what = "s", "seconds since 1970, ticks since another year (Apple's 2001, .NET's 1), or steps"
    return (
        f"{path}: its times are numbers from {low:g} to {high:g}, which may be {what}. State it in the data set's "
        "file:\n\n"
        f'time_format = "{guess}"    # or another of {", ".join(TIME_UNITS)}, or a format of strptime\n\n'
        "or leave the times out, or convert them by a query:\n\n[columns]\ntime = []"
    )
