"""Command lines that once ended in a traceback or did not end, each told in a sentence now."""

from pathlib import Path

import pytest
from mutations import TINY
from running import Fuzzer, watched
from test_fuzz import fuzzer  # noqa: F401

BEYOND = "99999999999999999999"
TRAIN = f"train Pendulum-v1 --algo sac {TINY} --set width=4 batch=4"


@pytest.mark.parametrize(
    "line",
    [
        f"{TRAIN} --max-minutes inf",
        f"{TRAIN} --max-minutes nan",
        f"{TRAIN} --max-minutes 1e300",
        f"{TRAIN} --algo .:x",
        f"{TRAIN} --algo ..x:y",
        f"{TRAIN} --algo os:",
        f"{TRAIN} depth=1000000",
        f"{TRAIN} --seeds {BEYOND}",
        f"{TRAIN} updates_per_step={BEYOND}",
        f"{TRAIN} warmup={BEYOND}",
        f"{TRAIN} batch={BEYOND} capacity={BEYOND}",
        *(
            f"{TRAIN} --{o} {BEYOND}"
            for o in ("steps", "log-every", "checkpoint-every", "evaluation-episodes", "threads")
        ),
        *(
            f"{TRAIN} --{o} {BEYOND}"
            for o in ("workers", "bias-every", "bias-episodes", "coverage-every")
        ),
        f"{TRAIN} --threads {2**63 - 1}",
        f"{TRAIN} --set-task horizon={BEYOND}",
        f"{TRAIN} --set-task r_limit=NaN",
        f'{TRAIN} --set-task env_kwargs={{"q":1}}',
        f"train x.y:z-v0 {TINY}",
        f"train .:z-v0 {TINY}",
        f"train ALE/Pong-v5 {TINY}",
        f"train dm_control/x-v0 {TINY}",
        f"train tasks_that:Fail-v0 {TINY}",
        f"resume x --steps {BEYOND}",
        f"evaluate x --seed {BEYOND}",
        f"evaluate x --episodes {BEYOND}",
        f"certify x --seed {BEYOND} --episodes 4",
        f"certify x --episodes {BEYOND}",
        "certify x --delta nan",
        "certify x --reward-range=nan,1 --episodes 4",
        f"watch x --seed {BEYOND}",
        f"study plan tiny.toml --memory {BEYOND} --no-trial --seeds {BEYOND}",
        f"study run tiny.toml --parallel {BEYOND} --seeds x",
        "train --config pipe",
        "study plan pipe.toml",
        "train --config empty.toml",
        "study plan empty.toml",
        "study plan date.toml",
        "train --config date.toml",
        "list settings --algo .:x",
    ],
)
def test_is_told(fuzzer: Fuzzer, line: str):  # noqa: F811
    sandbox = fuzzer._fresh()
    work = sandbox / "work"
    (work / "empty.toml").write_text("tasks = []\n")
    (work / "date.toml").write_text("title = 1979-05-27\nsteps = 1979-05-27\n")
    (work / "pipe.toml").symlink_to("pipe")
    (work / "tasks_that.py").write_text(
        "import gymnasium\n"
        "class Fail(gymnasium.Env):\n    def __init__(self): raise ZeroDivisionError('no robot')\n"
        "gymnasium.register('Fail-v0', Fail)\n"
    )
    code, said = watched(line.split(), sandbox)
    assert code is not None, said
    assert "Traceback" not in said, said
    assert code in (0, 2), said
    assert code == 0 or said.strip()
    assert not Path(sandbox / "outside" / "imported").exists()
