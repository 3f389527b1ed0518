"""Every example runs as it stands, in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAID = {
    "first_experiment": "one episode of the trained agent",
    "sweep": "6 runs in 1 cohort",
    "compare_algorithms": "against the baseline\nsac: regret ",
    "own_environment": "sac-seed0 finished",
    "own_agent": "beta=0.25-seed0",
    "bring_your_own": "Report: experiments",
    "callback_to_a_tracker": "run,step,name,value",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints_its_result(example, tmp_path):
    if "cartpole-swingup" in example.read_text():
        pytest.importorskip("pybullet")
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAID[example.stem] in done.stdout
    assert list(tmp_path.glob("experiments/**/runs/*/agent.safetensors"))
