"""Numbers, durations and names as text: every page, table and terminal writes them alike."""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "—"
LONGEST_NAME = 200  # bytes, which leave room for a seed and an ending


def number(x: float | None, scale: float = 1.0) -> str:
    """For tables of results."""
    return NOTHING if x is None else decimals(x / scale, digits_of(x / scale))


def digits_of(x: float) -> int:
    """One decimal as in the paper; more where the number would vanish, none where it is long."""
    return 0 if abs(x) >= 10_000 else 1 if abs(x) >= 1 or x == 0 else 2 if abs(x) >= 0.1 else 3


def decimals(x: float, digits: int) -> str:
    text = f"{x:,.{digits}f}"
    return text.replace("-", "−" if float(text.replace(",", "")) else "")


def p_value(p: float | None) -> str:
    return NOTHING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def brief(value: float) -> str:
    """For a display that has little room and is soon redrawn."""
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.1f}"
        if abs(value) >= 1
        else f"{value:.2f}"
    )


def setting_text(value: Any) -> str:
    """The value of a setting as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def assignments(settings: Mapping[str, Any]) -> list[str]:
    """Each as the command line takes it, such as `xi=0.1`."""
    return [f"{name}={setting_text(value)}" for name, value in settings.items()]


def clock(seconds: float) -> str:
    """1:05, or 2:00:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """1 min 05 s, or 2 h 00 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02d} min"
        if hours
        else f"{minutes} min {rest:02d} s"
        if minutes
        else f"{rest} s"
    )


def file_name(text: str, also: str = "") -> str:
    """A name for a file or folder: letters, digits and _.=+- stay, and what else is allowed. Two
    texts have two names: where something was replaced or cut, the beginning of the text's checksum
    follows, behind a ~ that no other has."""
    clean = re.sub(rf"[^\w.=+{re.escape(also)}-]+", "-", text)
    if clean == text and text.strip(".") and len(text.encode()) <= LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{clean.strip('-')[: LONGEST_NAME // 4]}~{digest}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "there are") -> str:
    """The end of a sentence about a name that there is not."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    return f"did you mean {' or '.join(close)}?" if close else f"{otherwise} {', '.join(known)}."
