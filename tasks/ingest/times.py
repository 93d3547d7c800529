"""The times of a log: recognise their form in a sample, and write the SQL that converts them to UTC.

Times are instants. Numbers are seconds, milliseconds, microseconds or nanoseconds since 1970, or eight-digit dates,
where their size leaves no doubt. Text is ISO 8601, with or without separators, or in a format of `strptime` that the
sample shows. Text without a zone is in the data set's `timezone`. Everything else needs the data set's `time_format`.
"""

import re
from collections.abc import Sequence

import duckdb

from oneclass.tasks.datasets import TIME_UNITS, Dataset
from oneclass.tasks.errors import InputError

FIRST_SECOND, LAST_SECOND = 788_918_400, 4_102_444_799
"""1995 to 2099: a number in this range, or in this range in a smaller unit, is an instant; ticks of .NET are not."""
SOON_SECOND = 2_000_000_000  # 2033: larger numbers are ids rather than times
LATE_SECOND = 946_684_800  # where all times lie before 2000, numbers may count from 2001
FIRST_DATE, LAST_DATE, MISSING = 1900_01_01, 2099_12_31, "1970-01-01"
NUMBER = re.compile(r"\s*-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*", re.ASCII)
NAIVE_ISO = r"\s*\d{4}([-/])\d{1,2}[-/]\d{1,2}([ T]+\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?\s*"
ZONED_ISO = (
    r"\s*\d{4}[-/]\d{1,2}[-/]\d{1,2}[ T]+\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?\s*"
    r"([+-]\d\d(:?\d\d)?|[A-Za-z]+(/[A-Za-z_]+)*([+-]\d+)?)\s*"
)
ISO = re.compile(rf"(?!.*[AaPp][Mm]\s*$)(({NAIVE_ISO})|({ZONED_ISO}))")  # am and pm are no zones
DATE = re.compile(
    r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|(19|20)\d{6}(\d{4}(\d\d)?)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
    r"|([A-Z][a-z]{2}, )?\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{2,4}"
    r"|([A-Z][a-z]{2} )?(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{1,2},? \d\d(\d\d|:\d\d))([ T,:].*)?"
)
MIDNIGHT = re.compile(r"[ T]00:00:00(\.0+)?$")
CLOCKS = ("%H:%M:%S.%f", "%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%I:%M:%S%p", "%I:%M%p",
          "%H:%M:%S,%g", "%H%M%S", "%H")  # fmt: skip
DATES = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y",
    "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y",
    "%B %d, %Y", "%Y%m%d", "%y-%m-%d", "%y/%m/%d", "%y.%m.%d",
)  # fmt: skip
COMPACT, COMPACT_FORMATS = re.compile(r"\s*(19|20)\d{10}(\d\d)?\s*"), ("%Y%m%d%H%M%S", "%Y%m%d%H%M")
ZONED = ("%a, %d %b %Y %H:%M:%S %z", "%d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M %z", "%a %b %d %H:%M:%S %z %Y")
"""Those of mail (RFC 2822) and of Twitter."""
GREENWICH = " (GMT|UTC|UT)$"
MIN_MATCH = 0.5
"""A form is recognised if at least this share of the sampled times has it; the others may be damaged."""


def detect_time_formats(label: str, times: Sequence[str], dataset: Dataset) -> tuple[str, ...]:
    """Detect the form of a log's times in a sample.

    Args:
        label: the column, for messages.

    Returns:
        `time_format` of the data set's file if declared, formats of `strptime`, or nothing for numbers and ISO 8601. A
        date's format is the first, before those with a time of day.

    Raises:
        InputError: the numbers may be of several units, or the day may be the month.
    """
    declared = [dataset.time_format] if isinstance(dataset.time_format, str) else list(dataset.time_format)
    filled = [time for time in times if time.strip() and time.strip() not in dataset.missing_ids]
    if declared:
        has_clock = declared[0] in TIME_UNITS or any("%H" in text or "%I" in text for text in declared)
        return tuple(declared) if has_clock or len(declared) > 1 else _with_clocks(declared[0])
    if _most_match(COMPACT, filled):
        return COMPACT_FORMATS
    numbers = [float(time) for time in filled if NUMBER.fullmatch(time)]
    if len(numbers) > MIN_MATCH * len(filled):
        if sum(map(_is_certain, numbers)) < MIN_MATCH * len(numbers):
            raise InputError(
                f"{label}: its times are numbers from {min(numbers):g} to {max(numbers):g}, which may be years, days "
                "of Excel, ticks since another year than 1970, or steps. State it in the data set's file:\n\n"
                f'time_format = "s"    # or {", ".join(TIME_UNITS)}, or a format of strptime, such as "%Y"\n\n'
                "convert them by a query, or leave them out: --time -"
            )
        return ()
    if not filled or sum(ISO.fullmatch(time) is not None for time in filled) >= MIN_MATCH * len(filled):
        return ()
    return _choose_formats(label, filled, dataset.max_future_days)


def _choose_formats(label: str, times: Sequence[str], future_days: float) -> tuple[str, ...]:
    """Return the formats that read most of some times, at the most some days from now."""
    candidates = [ZONED, *map(_with_clocks, DATES)]
    past = f"between '1000-01-01' and now()::timestamp + to_days({future_days + 1:.0f})"
    counts = (f"count(*) filter ({_parse(formats)} {past})" for formats in candidates)
    with duckdb.connect() as connection:
        query = f"select {', '.join(counts)} from (select unnest(?::varchar[]) as time)"
        found = connection.execute(query, [list(times)]).fetchone() or ()
    best = max(found)
    first, *others = [formats for formats, count in zip(candidates, found, strict=True) if count == best]
    if best < MIN_MATCH * len(times):
        raise InputError(
            f"{label}: its times, such as {times[0].strip()!r}, are in no known form. State it in the data set's file:"
            '\n\ntime_format = "%d.%m.%Y %H:%M"    # or another\n\nor leave them out: --time -'
        )
    date = first[0]
    if swapped := [one[0] for one in others if sorted(one[0]) == sorted(date)]:  # the same parts
        raise InputError(
            f"{label}: its times may name the day, month or year first, as {times[0].strip()!r}. State which in the "
            f'data set\'s file:\n\ntime_format = "{date}"    # or "{swapped[0]}"'
        )
    return first


def are_times(texts: Sequence[str]) -> bool:
    """Whether most texts that are not empty are dates, with a time of day or without."""
    return _most_match(ISO, texts) or _most_match(DATE, texts)


def may_be_times(texts: Sequence[str]) -> bool:
    """Whether most texts are dates, or all are numbers that may count from 1970 to this century's first decades."""
    numbers = [float(text) for text in texts if NUMBER.fullmatch(text)] or [0.0]
    spans = [(LATE_SECOND * ticks, SOON_SECOND * ticks) for ticks in TIME_UNITS.values()]
    are_instants = any(low <= min(numbers) <= max(numbers) < high for low, high in spans)
    return are_times(texts) or (are_instants and len(numbers) == len(texts))


def _most_match(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    filled = [text for text in texts if text.strip()]
    return bool(filled) and sum(pattern.fullmatch(text) is not None for text in filled) > MIN_MATCH * len(filled)


def describe_doubts(times: Sequence[str]) -> list[str]:
    """Return a sentence on each thing that sampled times suggest, which are kept as they are."""
    if len(times) > 1 and len(set(times)) == 1:
        return [f"all times are equal, {times[0].strip()}: they give no order"]
    if missing := sum(time.strip().startswith(MISSING) for time in times):
        return [f"{missing / len(times):.0%} of the times are {MISSING}, which stands for a missing one: rejected"]
    numbers = [float(time) for time in times if NUMBER.fullmatch(time)]
    if numbers and FIRST_SECOND <= min(numbers) <= max(numbers) < LATE_SECOND:
        return ["all times lie before 2000: numbers that count from 2001 need another `time_format`, or a query"]
    return []


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
        per_second = TIME_UNITS[formats[0]]
        fraction = f"make_timestamp(({decimal} / {per_second} * 1e6)::bigint)"
        exact = f"make_timestamp({_to_microseconds(whole, per_second)})"
        in_range = f"abs({decimal}) < {253402300800 * per_second}"
        return f"case when {in_range} then if(contains(time, '.'), {fraction}, {exact}) end"
    if formats:
        return f"{_parse(formats)} at time zone 'UTC'" if "%z" in formats[0] else localise(_parse(formats), timezone)
    units = "\n".join(
        f"when {whole} between {FIRST_SECOND * scale} and {LAST_SECOND * scale + scale - 1}"
        f" then make_timestamp({_to_microseconds(whole, scale)})"
        for scale in (1, 1_000, 1_000_000, 1_000_000_000)
    )
    day = localise("try_strptime(time, '%Y%m%d')", timezone)
    naive = localise("try_cast(rtrim(time) as timestamp)", timezone)
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


def _parse(formats: Sequence[str]) -> str:
    """Return the SQL expression of the timestamp of the text `time` in one of some formats; null if it has none."""
    texts = ", ".join("'" + text.replace("'", "''") + "'" for text in formats)
    time = f"regexp_replace(trim(time), '{GREENWICH}', ' +0000')" if "%z" in formats[0] else "trim(time)"
    return f"try_strptime({time}, [{texts}])"


def _to_microseconds(number: str, per_second: int) -> str:
    scaled = f"* {1_000_000 // per_second}" if per_second <= 1_000_000 else f"// {per_second // 1_000_000}"
    return f"{number} {scaled}"


def _is_certain(number: float) -> bool:
    in_seconds = any(FIRST_SECOND * scale <= number < (LAST_SECOND + 1) * scale for scale in (1, 10**3, 10**6, 10**9))
    month, day = divmod(int(number) % 10_000, 100)
    return in_seconds or (FIRST_DATE <= number <= LAST_DATE and 1 <= month <= 12 and 1 <= day <= 31)


def _with_clocks(date_format: str) -> tuple[str, ...]:
    return (date_format, *(f"{date_format}{mark}{clock}" for mark in (" ", "T", ", ") for clock in CLOCKS))
