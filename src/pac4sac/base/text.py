"""Numbers, durations and names as text, in the same format in reports, tables and terminals."""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "—"
LONGEST_NAME = 200  # largest number of bytes of a name; leaves room for a seed and an extension


def number(x: float | None, scale: float = 1.0) -> str:
    """Return a number, divided by a scale, as text for a table; a dash for None."""
    if x is None:
        return NOTHING
    return decimals(x / scale, digits_of(x / scale))


def digits_of(x: float) -> int:
    """Return the number of decimals: one as in the paper, more below 1, none for 10,000 and
    above."""
    if abs(x) >= 10_000:
        return 0
    if abs(x) >= 1 or x == 0:
        return 1
    return 2 if abs(x) >= 0.1 else 3


def decimals(x: float, digits: int) -> str:
    """Return a number with a fixed number of decimals, and a minus sign unless it rounds to 0."""
    text = f"{x:,.{digits}f}"
    return text.replace("-", "−" if float(text.replace(",", "")) else "")


def p_value(p: float | None) -> str:
    """Return a p-value as text for a table; a dash for None."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_text(p: float) -> str:
    """Return a p-value as text for a sentence."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def brief(value: float) -> str:
    """Return a number as short text for a live display."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def setting_text(value: Any) -> str:
    """Return the value of a setting in the format of the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def assignments(settings: Mapping[str, Any]) -> list[str]:
    """Return settings in the format of the command line, such as `xi=0.1`."""
    return [f"{name}={setting_text(value)}" for name, value in settings.items()]


def clock(seconds: float) -> str:
    """Return a duration such as 1:05, or 2:00:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """Return a duration such as 5 s, 1 min 05 s, or 2 h 00 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def file_name(text: str, also: str = "") -> str:
    """Return a name for a file or folder; different texts have different names.

    Letters, digits, `_.=+-` and the characters in `also` are kept. If something was replaced or
    cut, a ~ and the beginning of the text's checksum are appended.
    """
    clean = re.sub(rf"[^\w.=+{re.escape(also)}-]+", "-", text)
    if clean == text and text.strip(".") and len(text.encode()) <= LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{clean.strip('-')[: LONGEST_NAME // 4]}~{digest}"


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "use one of", cutoff: float = 0.6
) -> str:
    """Return the end of an error message about an unknown name, with similar names or all names."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"{otherwise} {', '.join(known)}."
