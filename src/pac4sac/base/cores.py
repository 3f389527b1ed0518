"""How many cores this process may keep busy."""

import math
import os
from pathlib import Path

from pac4sac.base.errors import UserError

# for a cohort of a study that trains beside others, and for anyone who wants to use less
SHARE = "PAC4SAC_CORES"
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container
# how often a waiting thread of torch looks again before it sleeps, 300,000 times if unset
SPINNING = "GOMP_SPINCOUNT"


def machine_cores() -> int:
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = map(float, QUOTA.read_text().split())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return allowed
    return max(1, min(allowed, math.ceil(quota / period)))


def cores() -> int:
    """All that this process may run on, or the share of them that it was given."""
    share = os.environ.get(SHARE)
    if share is None:
        return machine_cores()
    if not share.isdecimal() or int(share) < 1:
        raise UserError(f"{SHARE} must be a whole number above 0, not {share!r}.")
    return int(share)


def let_waiting_threads_sleep() -> None:
    """Threads of torch that wait for each other are to sleep after some ten microseconds, not after
    ten milliseconds in which they keep the cores from whoever has work. It counts where torch is
    loaded later; a user's choice stays."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPINNING, "1000")


def share_out(work: float, all_work: float) -> int:
    """The cores of a cohort beside others, by its share of the simulators' work: its own, where it
    needs no more, or twice what it needs on average, since its simulators rest while it acts and
    others leave theirs when they end. The system lets each have what the others do not use."""
    needed = cores() * work / all_work if all_work else 1.0
    return 1 if needed <= 1 else min(cores(), math.ceil(2 * needed))
