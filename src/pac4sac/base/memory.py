"""Set how the allocator of this process handles freed memory."""

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in glibc's malloc.h
LARGEST_KEPT = 32 * 2**20  # bytes of one allocation, glibc's limit
MOST_KEPT = 256 * 2**20  # bytes of freed memory at the end of the heap
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next allocation instead of returning it to the system.

    The tensors of an update need a few megabytes, which are freed and allocated again in the next
    update. If this memory were returned to the system, page faults would take a fifth of the time
    of an eager update. The function does nothing on systems without glibc, or if the user has
    configured the allocator.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in VARIABLES):
        mallopt(MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(TRIM_THRESHOLD, MOST_KEPT)
