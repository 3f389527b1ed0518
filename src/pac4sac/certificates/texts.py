"""The texts of a certificate."""

import tomllib
from pathlib import Path
from typing import Any

TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
CAVEATS: dict[str, str] = TEXTS["caveats"]  # assumptions of bounds that fail
REMARKS: dict[str, str] = TEXTS["remarks"]  # omitted parts of a certificate, with the reasons
