"""Sharing a GPU: the service is started for the cohorts and ended after them, and its absence is no
failure."""

import os
from pathlib import Path

import pytest

from pac4sac.studies.local import MPS_PLACE, shared_gpu


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the control program that writes down how it was called."""
    told = tmp_path / "told"
    program = tmp_path / "nvidia-cuda-mps-control"
    start, say = f'echo "start ${MPS_PLACE}" >> {told}', f'echo "said $(cat)" >> {told}'
    program.write_text(f'#!/bin/sh\nif [ "$1" = "-d" ]; then {start}; else {say}; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(MPS_PLACE, raising=False)
    return told


def test_the_service_runs_as_long_as_the_gpu_is_shared(service: Path) -> None:
    with shared_gpu(wanted=True) as variables:
        assert service.read_text() == f"start {variables[MPS_PLACE]}\n"
        assert Path(variables[MPS_PLACE]).is_dir()
    assert service.read_text().splitlines()[-1] == "said quit"
    assert not Path(variables[MPS_PLACE]).exists()


def test_no_service_is_started_for_one_cohort_or_if_one_is_running(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_gpu(wanted=False) as variables:
        assert variables == {}
    monkeypatch.setenv(MPS_PLACE, "/somewhere")
    with shared_gpu(wanted=True) as variables:
        assert variables == {}
    assert not service.exists()


def test_without_the_service_cohorts_take_turns(
    service: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (service.parent / "nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")
    with shared_gpu(wanted=True) as variables:
        assert variables == {}
    assert "did not start" in caplog.text
