"""The script of the page scores runs as `runs/metrics.py` does, by the same cases."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pac4sac
from pac4sac.runs.metrics import STREAK, score

SCRIPT = Path(pac4sac.__file__).parent / "report" / "report.js"
CASES: list[tuple[list[float], float, int]] = [  # returns, threshold, E_max
    ([0.0, 300.0, 900.0, 900.0, 900.0, 900.0, 900.0], 850.0, 40),
    ([900.0] * 4 + [850.0] + [900.0] * 5, 850.0, 10),
    ([900.0] * 4, 850.0, 10),
    ([-200.0, -100.0, -300.0], -150.0, 3),
    ([-200.0, -100.0, -300.0, -50.0], -150.0, 3),
    ([10.0] * 3 + [90.0] * 5, 50.0, 6),
    ([], 50.0, 6),
]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_regret_and_episodes_until_solved_are_those_of_the_metrics() -> None:
    (function,) = re.findall(r"^function score\(.*?^}", SCRIPT.read_text(), re.S | re.M)
    runs = [
        {"run": {"values": returns}, "limit": limit, "task": {"e_max": e_max}}
        for returns, limit, e_max in CASES
    ]
    program = (
        f"const streak = {STREAK};\n{function}\n"
        f"const cases = {json.dumps(runs)};\n"
        "const scores = cases.map(one => score(one.run, one.limit, one.task));\n"
        "console.log(JSON.stringify(scores));"
    )
    done = subprocess.run(["node", "-e", program], check=True, capture_output=True, text=True)
    for by_script, (returns, limit, e_max) in zip(json.loads(done.stdout), CASES, strict=True):
        wanted = score(returns, limit, e_max)
        assert (by_script["solved"], by_script["complete"]) == (wanted.solved, wanted.complete)
        assert by_script["until"] == wanted.episodes
        assert by_script["regret"] == pytest.approx(wanted.regret)
