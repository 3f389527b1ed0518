"""How many CPU cores this process may use."""

import math
import os
from pathlib import Path

from pac4sac.base.errors import UserError

# limit for the cohorts of a study, which train at the same time, and for users
SHARE = "PAC4SAC_CORES"
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container
# how often a waiting thread of torch checks before it sleeps; 300,000 times if unset
SPINNING = "GOMP_SPINCOUNT"


def machine_cores() -> int:
    """Return the number of cores that the system gives to this process."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    try:
        quota, period = map(float, QUOTA.read_text().split())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return allowed
    return max(1, min(allowed, math.ceil(quota / period)))


def cores() -> int:
    """Return the number of cores to use: all of the machine, or the share in PAC4SAC_CORES."""
    share = os.environ.get(SHARE)
    if share is None:
        return machine_cores()
    if not share.isdecimal() or int(share) < 1:
        raise UserError(f"{SHARE} must be a whole number above 0, not {share!r}.")
    return int(share)


def let_waiting_threads_sleep() -> None:
    """Let waiting threads of torch sleep after ten microseconds instead of ten milliseconds.

    A thread that waits without sleeping keeps a core from others. This must be called before torch
    is imported. It does not change what the user has set.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPINNING, "1000")


def share_out(work: float, all_work: float) -> int:
    """Return the number of cores for a cohort that trains at the same time as others.

    A cohort gets twice its share of the simulators' work, since its simulators wait while it acts,
    and other cohorts end earlier. One core is enough if its share is at most one core.

    Args:
        work: Work of the cohort's simulators.
        all_work: Work of the simulators of all cohorts.
    """
    needed = cores() * work / all_work if all_work else 1.0
    if needed <= 1:
        return 1
    return min(cores(), math.ceil(2 * needed))
