import os
import subprocess
import sys

import pytest

from pac4sac.base import cores
from pac4sac.base.errors import UserError


def test_an_environment_variable_overrides_the_number_of_cores(monkeypatch):
    monkeypatch.delenv(cores.SHARE, raising=False)
    assert cores.cores() == cores.machine_cores()
    monkeypatch.setenv(cores.SHARE, "3")
    assert cores.cores() == 3


@pytest.mark.parametrize("nonsense", ["", "0", "-2", "2.5", "many"])
def test_an_invalid_number_of_cores_is_refused(monkeypatch, nonsense):
    monkeypatch.setenv(cores.SHARE, nonsense)
    with pytest.raises(UserError, match="whole number above 0"):
        cores.cores()


@pytest.mark.parametrize(
    ("limit", "expected"), [("150000 100000", 2), ("1000 100000", 1), ("max 100000", 8)]
)
def test_a_container_has_no_more_cores_than_its_quota(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
    assert cores.machine_cores() == 8
    cores.QUOTA.write_text(f"{limit}\n")
    assert cores.machine_cores() == expected


def test_cohorts_get_cores_by_the_work_of_their_simulators(monkeypatch):
    monkeypatch.setenv(cores.SHARE, "16")
    # the first needs 2.25 on average
    assert [cores.share_out(work, 64) for work in (9, 6, 4, 1)] == [5, 3, 1, 1]
    assert cores.share_out(79, 80) == 16  # never more than there are
    assert cores.share_out(0, 0) == 1


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_waiting_torch_threads_sleep_soon_unless_configured_otherwise(chosen, expected):
    unset = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    code = (
        "import os, sys, pac4sac; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env=unset | chosen, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [expected, "False"]
