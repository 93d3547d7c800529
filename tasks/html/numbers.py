"""Format numbers for people: 1,180 instead of 1.18e+03, a true minus sign, and p-values no surer than their source."""

from datetime import datetime
from math import floor, isfinite, log10

MINUS = "\N{MINUS SIGN}"
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


def format_fixed(value: float, digits: int = 0, *, signed: bool = False) -> str:
    """Format a number with `digits` decimals and thousands separators; `signed` adds a plus to positive ones."""
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    if float(text.replace(",", "") or 0) == 0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def format_with_error(value: float, error: float | None) -> tuple[str, str]:
    """Format a value and its standard error, the error with two digits and the value with as many decimals as that.

    The error is empty if there is none or it is zero; the value then has four decimals.
    """
    if not error or not isfinite(error):
        return format_fixed(value, 4), ""
    digits = min(4, max(0, 1 - floor(log10(error))))
    return format_fixed(value, digits), f"±{NO_BREAK_SPACE}{format_fixed(error, digits)}"


def format_significant(value: float, digits: int = 3, *, zeros: bool = False) -> str:
    """Format a number with `digits` significant digits, trailing `zeros` on request; whole numbers keep all digits."""
    if not isfinite(value):
        return str(value).replace("-", MINUS)
    if value == 0:
        return "0"
    after = max(0, digits - 1 - floor(log10(abs(value))))
    text = format_fixed(value, after)
    return text.rstrip("0").rstrip(".") if "." in text and not zeros else text


def format_p_value(value: float, least: float = 0.001) -> str:
    """Format a p-value; at or below `least`, the smallest distinguishable value: `< 0.01`."""
    if value <= least * (1 + 1e-9):
        return f"<{NO_BREAK_SPACE}{format_significant(least, 1)}"
    return format_significant(value, 2)


def format_percent(share: float) -> str:
    """Format a share: 16 %, 0.4 %."""
    return f"{format_fixed(100 * share, 0 if share >= 0.0995 or share == 0 else 1)}{NO_BREAK_SPACE}%"


def format_count(count: int, thing: str) -> str:
    """Format a count with its noun: 1 rule; 2 rules."""
    return f"{count:,}{NO_BREAK_SPACE}{thing}{'' if count == 1 else 's'}"


def format_list(model: str, score: str) -> str:
    """Format the name of a ranked list: its model and, if the model has several, its score."""
    return model if score == "score" else f"{model} ({score})"


def format_minute(moment: datetime) -> str:
    """Format a time: 20 November 2026, 03:00 UTC."""
    return f"{moment.day} {moment:%B %Y}, {moment:%H:%M} UTC".replace(" ", NO_BREAK_SPACE)
