"""How many cores this process may keep busy."""

import os

SHARE = "PAC4SAC_CORES"  # for a cohort of a study that trains beside others, and for anyone who wants to use less


def machine_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores() -> int:
    """All that this process may run on, or the share of them that it was given."""
    share = os.environ.get(SHARE, "")
    return int(share) if share.isdecimal() and int(share) > 0 else machine_cores()


def share_out(runs: int, all_runs: int) -> int:
    """The cores of a cohort beside others, by its share of the runs. A quarter is shared out twice, since simulators
    rest while their learner acts."""
    return min(cores(), max(1, round(1.25 * cores() * runs / all_runs)))
