"""Freed memory stays with the process, so that an update causes no page faults."""

import os
import platform
import subprocess
import sys

import pytest

from pac4sac.base import memory

PROGRAM = """
import resource, numpy as np
from pac4sac.base.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
for _ in range(3):
    before = faults()
    buffers = [np.ones(2**17) for _ in range(6)]  # a megabyte each
    del buffers
print(faults() - before)
"""
PAGES = 6 * 2**20 // 4096


def page_faults(**variables: str) -> int:
    """Return the page faults of the third time that six megabytes are allocated."""
    unset = {name: value for name, value in os.environ.items() if name not in memory.VARIABLES}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=unset | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_used_again_without_page_faults():
    assert page_faults() < PAGES / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_settings_of_the_user_take_precedence():
    assert page_faults(MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="4096") > PAGES / 2
