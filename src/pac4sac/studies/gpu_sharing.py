"""One GPU for several processes. Without help its processes take turns; NVIDIA's multi-process service (MPS) lets
their kernels run at the same time, which about doubles what four cohorts of five runs get done."""

import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
PLACE = "CUDA_MPS_PIPE_DIRECTORY"  # who has it set uses a service of their own, which is left alone
PATIENCE = 20.0  # seconds


@contextlib.contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Environment variables for the processes that share the GPU; none where sharing is not wanted or not possible."""
    control = shutil.which(CONTROL)
    if not wanted or control is None or PLACE in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="pac4sac-mps-", ignore_cleanup_errors=True) as place:
        variables = {PLACE: place, "CUDA_MPS_LOG_DIRECTORY": place}
        how: dict[str, Any] = {"env": {**os.environ, **variables}, "capture_output": True, "timeout": PATIENCE}
        try:
            subprocess.run([control, "-d"], check=True, **how)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("The GPU's multi-process service did not start (%s); cohorts take turns.", error)
            yield {}
            return
        try:
            yield variables
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([control], input=b"quit\n", check=False, **how)
