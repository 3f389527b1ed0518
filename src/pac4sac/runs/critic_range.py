"""The share of a categorical critic's targets that lies outside the range of its bins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pac4sac.base.files import parse_jsonl

METRIC = "outside"  # share of the target's probability, in metrics.jsonl
ENTRY = "targets_outside"  # its mean over the training, in run.json
LARGEST = 0.01  # largest share without a warning


def mean_outside(metrics: bytes) -> float | None:
    """Return the mean share in a metrics log; None for other kinds of critics."""
    shares = [row[METRIC] for row in parse_jsonl(metrics)[0] if row.get(METRIC) is not None]
    return float(np.mean(shares)) if shares else None


def warning_of(about: Mapping[str, Any]) -> str:
    """Return the warning on a run, given the content of its run.json; empty if none is needed."""
    share = about.get(ENTRY)
    if not isinstance(share, int | float) or share <= LARGEST:
        return ""
    low, high = (about["config"].get(name) for name in ("value_min", "value_max"))
    advice = "Lower value_min or raise value_max"
    if not about["config"].get("normalise_rewards"):
        advice += ", or set normalise_rewards=true"
    return (
        f"{share:.1%} of the targets of {about['run']} were outside the range of its critic, "
        f"{low:g} to {high:g}, and were clipped to that range. {advice}."
    )
