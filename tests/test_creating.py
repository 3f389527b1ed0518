"""Many who make the same experiment folder at the same moment: one trains it, and the others are
told so."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_experiments import SETTINGS

from pac4sac.cli.main import main

TINY = [
    "--steps",
    "60",
    "--device",
    "cpu",
    "--backend",
    "eager",
    "--workers",
    "0",
    "--threads",
    "1",
]
TINY += [
    "--evaluation-episodes",
    "0",
    "--set",
    *(f"{name}={value}" for name, value in SETTINGS.items()),
]


def at_once(number: int, work: Callable[[int], int]) -> list[int]:
    """The exit codes of as many processes, all of which begin when the last of them is ready."""
    ready, go = os.pipe(), os.pipe()
    children = []
    for k in range(number):
        child = os.fork()
        if not child:
            code = 99
            try:
                os.close(go[1])
                torch.set_num_threads(1)
                os.write(ready[1], b".")
                os.read(go[0], 1)
                code = work(k)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    for _ in range(number):
        os.read(ready[0], 1)
    for end in go[::-1]:
        os.close(end)  # which every child hears
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(ready[0])
    os.close(ready[1])
    return codes


def test_only_one_of_many_processes_trains_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    sac = ["train", "Pendulum-v1", "--algo", "sac", "--out", "x", *TINY]
    codes = at_once(12, lambda k: main([*sac, "--seeds", str(k)]))
    assert Counter(codes) == {0: 1, 2: 11}
    winner = f"sac-seed{codes.index(0)}"
    assert [path.name for path in (tmp_path / "x" / "runs").iterdir()] == [winner]
    stored = json.loads((tmp_path / "x" / "experiment.json").read_bytes())
    assert [run["run"] for cohort in stored["cohorts"] for run in cohort] == [winner]
    # Not by lines: the sentences of two processes may come before the line ends of both.
    told = capfd.readouterr().err.split("pac4sac: ")[1:]
    assert len(told) == 11
    assert all("another process" in sentence or "is not empty" in sentence for sentence in told)


def test_without_a_name_each_training_gets_a_separate_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    codes = at_once(
        4, lambda k: main(["train", "Pendulum-v1", "--algo", "sac", "--seeds", str(k), *TINY])
    )
    assert codes == [0] * 4
    runs = [path.name for path in tmp_path.glob("experiments/pendulum-v1-sac*/runs/*")]
    assert sorted(runs) == [f"sac-seed{k}" for k in range(4)]
