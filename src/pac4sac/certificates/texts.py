"""What a certificate says in words, which is data."""

import tomllib
from pathlib import Path
from typing import Any

TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
CAVEATS: dict[str, str] = TEXTS["caveats"]  # assumptions of bounds that fail
REMARKS: dict[str, str] = TEXTS["remarks"]  # what is left out of a certificate, and why
