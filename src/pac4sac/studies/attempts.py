"""Progress of a cohort that a cluster interrupts several times."""

from collections.abc import Sequence
from pathlib import Path

from pac4sac.training.checkpoint import KEPT, newest_first

# Number of losses without a new checkpoint after which a cohort counts as failed.
LOSSES = 5


def checkpoints(folder: Path, most: int = KEPT) -> list[Path]:
    """Return the newest checkpoints of each cohort of an experiment.

    An experiment of a study has one cohort, and one for each retry of a failed run.
    """
    cohorts = sorted(folder.glob("cohorts/*"))
    return [path for cohort in cohorts for path in newest_first(cohort)[:most]]


def got_on(losses: Sequence[str]) -> bool:
    """Return whether a cohort made progress between losses, or was lost only a few times.

    Args:
        losses: Name of the newest checkpoint at each loss.
    """
    return len(losses) < LOSSES or len(set(losses[-LOSSES:])) > 1
