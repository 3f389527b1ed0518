"""The number of CPU cores that this process may use."""

import math
import os
from pathlib import Path

from pac4sac.base.errors import UserError

# limit set for concurrent cohorts of a study, or by the user
SHARE = "PAC4SAC_CORES"
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # limit of a container
# number of checks of a waiting torch thread before it sleeps; 300,000 if unset
SPINNING = "GOMP_SPINCOUNT"


def machine_cores() -> int:
    """Return the number of cores that the system allows this process."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    try:
        quota, period = map(float, QUOTA.read_text().split())
    except (OSError, ValueError):  # no container, or no limit ("max")
        return allowed
    return max(1, min(allowed, math.ceil(quota / period)))


def cores() -> int:
    """Return the number of cores to use: all cores of the machine, or the number in
    PAC4SAC_CORES."""
    share = os.environ.get(SHARE)
    if share is None:
        return machine_cores()
    if not share.isdecimal() or int(share) < 1:
        raise UserError(f"{SHARE} must be a whole number above 0, not {share!r}.")
    return int(share)


def let_waiting_threads_sleep() -> None:
    """Let waiting threads of torch sleep after ten microseconds instead of ten milliseconds.

    A spinning thread keeps a core busy. Call this before torch is imported. A value set by the user
    is kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPINNING, "1000")


def share_out(work: float, all_work: float) -> int:
    """Return the number of cores for a cohort that trains at the same time as others.

    A cohort's share is its part of the simulators' work. It gets twice that share, because its
    simulators wait while it acts, and because other cohorts end earlier. A share of at most one
    core is not doubled.

    Args:
        work: Work of the cohort's simulators.
        all_work: Work of the simulators of all cohorts.
    """
    needed = cores() * work / all_work if all_work else 1.0
    if needed <= 1:
        return 1
    return min(cores(), math.ceil(2 * needed))
