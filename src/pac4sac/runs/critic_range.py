"""How much of its targets a categorical critic could not represent, because it was outside the
range of its bins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pac4sac.base.files import parse_jsonl

METRIC = "outside"  # share of the target's probability, in metrics.jsonl
ENTRY = "targets_outside"  # its mean over the training, in run.json
LARGEST = 0.01  # share that needs no warning


def mean_outside(metrics: bytes) -> float | None:
    """Return the mean share over the content of a metrics log; None for another kind of critic."""
    shares = [row[METRIC] for row in parse_jsonl(metrics)[0] if row.get(METRIC) is not None]
    return float(np.mean(shares)) if shares else None


def warning_of(about: Mapping[str, Any]) -> str:
    """Return what to say of a run, given the content of its run.json; nothing if all is well."""
    share = about.get(ENTRY)
    if not isinstance(share, int | float) or share <= LARGEST:
        return ""
    low, high = (about["config"].get(name) for name in ("value_min", "value_max"))
    return (
        f"{share:.1%} of the targets of {about['run']} were outside the range of its critic, "
        f"{low:g} to {high:g}, and counted as the nearest end. Set value_min and value_max further "
        "apart, or normalise_rewards=true."
    )
