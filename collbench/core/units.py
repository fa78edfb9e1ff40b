"""Sizes, times and rates as people write them. The only place where units are converted.

Sizes are bytes with binary suffixes (K, M, G, T = 2^10, 2^20, 2^30, 2^40), bandwidths decimal GB/s
(1e9 bytes a second), times seconds inside and microseconds at the edge.
"""

import math
import re
from fractions import Fraction

from collbench.core.errors import UsageError

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"0*(\d+)(?:\.(\d+?)0*)?\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
MAX_SIZE_BYTES = 2**53  # up to here a float holds every whole number
_MOST_SHOWN = 9  # characters of an exact size: all of 512M + 8 bytes
_MOST_DIGITS = 18  # of a whole number: 64 bits hold all of them
# No power of 2 up to T makes a whole number of more decimals, and none of more digits is in range.
_MOST_SIZE_DIGITS = 40


def parse_whole(text: str) -> int | None:
    """A whole number from 0 on, of up to 18 decimal digits; None for any other text.

    >>> parse_whole("007"), parse_whole("-1"), parse_whole("9" * 400)
    (7, None, None)
    """
    is_whole = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_whole else None


def parse_size(text: str) -> int:
    """Bytes from a text such as `8`, `64K`, `1.5M` or `2GiB`.

    Raises UsageError if the text is no size, not a whole number of bytes, or beyond MAX_SIZE_BYTES.

    >>> parse_size("64K"), parse_size("1.5M"), parse_size("8")
    (65536, 1572864, 8)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"'{text}' is not a size",
            "write bytes with an optional suffix K, M, G or T (powers of 1024): 8, 64K, 1.5M",
        )
    whole, decimals, suffix = match[1], match[2] or "0", match[3].upper()
    if len(whole) > _MOST_SIZE_DIGITS:
        raise _too_large(text)
    is_short = len(decimals) <= _MOST_SIZE_DIGITS
    size_bytes = Fraction(f"{whole}.{decimals if is_short else 0}") * _SUFFIXES[suffix]
    if size_bytes > MAX_SIZE_BYTES:
        raise _too_large(text)
    if size_bytes.denominator != 1 or not is_short:
        raise UsageError(
            f"'{text}' is not a whole number of bytes",
            "write whole bytes, for example 1536 or 1.5K",
        )
    return int(size_bytes)


def _too_large(text: str) -> UsageError:
    return UsageError(
        f"'{text}' is more than {format_size(MAX_SIZE_BYTES)}", "give a size that memory can have"
    )


def format_size(size_bytes: int) -> str:
    """Bytes as people read them: the shortest exact text, or if that is long, two decimals.

    >>> format_size(65536), format_size(1000), format_size(1 << 30), format_size(4 * 10**12)
    ('64K', '1000', '1G', '3.64T')
    """
    exact = exact_size(size_bytes)
    if len(exact) <= _MOST_SHOWN:
        return exact
    suffix, unit = next(one for one in reversed(_SUFFIXES.items()) if size_bytes >= one[1])
    return f"{size_bytes / unit:.2f}{suffix}"


def span_of_sizes(first: int, last: int) -> str:
    """From which size to which.

    >>> span_of_sizes(8, 65536), span_of_sizes(8, 8)
    ('8 to 64K', '8')
    """
    return " to ".join(dict.fromkeys(map(format_size, (first, last))))


def exact_size(size_bytes: int) -> str:
    """Bytes as the shortest exact text, which parse_size reads back.

    >>> exact_size(65536), exact_size(4 * 10**12)
    ('64K', '3906250000K')
    """
    for suffix, unit in reversed(_SUFFIXES.items()):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)


def format_rate(rate_gbs: float) -> str:
    """A bandwidth in GB/s with three or four significant digits, fewer of small ones.

    >>> format_rate(999.94), format_rate(1000), format_rate(0.01234), format_rate(12.345)
    ('999.9', '1000', '0.012', '12.35')
    >>> format_rate(0.00042), format_rate(4e-6), format_rate(0)
    ('0.0004', '0.000004', '0.000')
    """
    if rate_gbs >= 999.95:
        return f"{rate_gbs:.0f}"
    if rate_gbs >= 100:
        return f"{rate_gbs:.1f}"
    if rate_gbs >= 0.1:
        return f"{rate_gbs:.2f}"
    digits = 3 if rate_gbs >= 0.0005 or rate_gbs <= 0 else -math.floor(math.log10(rate_gbs))
    return f"{rate_gbs:.{digits}f}"


def format_time_us(time_us: float) -> str:
    """A time in microseconds with about four significant digits.

    >>> format_time_us(3.14159), format_time_us(31.4159), format_time_us(31415.9)
    ('3.14', '31.4', '31416')
    """
    if time_us >= 100:
        return f"{time_us:.0f}"
    return f"{time_us:.1f}" if time_us >= 10 else f"{time_us:.2f}"


def format_duration(seconds: float) -> str:
    """A waiting time for people.

    >>> format_duration(7.4), format_duration(75), format_duration(7300)
    ('7 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def to_us(seconds: float) -> float:
    """Seconds to microseconds."""
    return seconds * 1e6


def rate_gbs(size_bytes: float, seconds: float) -> float:
    """Bytes and seconds to decimal GB/s."""
    return size_bytes / seconds / 1e9
