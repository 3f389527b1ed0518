"""Names that are no text, and commands as a shell starts them, in a locale that knows no é."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import TINY
from running import Fuzzer, watched
from test_fuzz import BY_HAND, fuzzer  # noqa: F401

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMALL = f"{TINY}/é --set width=4 batch=4 warmup=10 --set-task horizon=10"

WITH_UMLAUTS = [
    (f"train Pendulum-v1 --algo sac {SMALL}", 0),
    ("report x --out é", 0),
    ("certify x --episodes 4 --out é", 0),
    ("watch é", 2),
    ("train --config é.toml", 2),
]


@pytest.mark.parametrize(
    "line",
    [
        "report é study --out out",
        "results é",
        "study collect é --into new",
        *(
            ["certify é --episodes 4 --out out", "evaluate é --episodes 1", "resume é"]
            if BY_HAND
            else []
        ),
    ],
)
def test_a_name_that_is_not_text(fuzzer: Fuzzer, line: str):  # noqa: F811
    sandbox, name = fuzzer._fresh(), os.fsdecode(b"\xff")
    (sandbox / "work" / "x").rename(sandbox / "work" / name)
    code, said = watched(line.replace("é", name).split(), sandbox)
    assert code == 0, said


@pytest.mark.parametrize(
    ("line", "expected"),
    [("study status é.toml --out study", 0), *(WITH_UMLAUTS if BY_HAND else [])],
)
def test_a_process_in_an_ascii_locale(fuzzer: Fuzzer, line: str, expected: int):  # noqa: F811
    work = fuzzer._fresh() / "work"
    (work / "é.toml").write_bytes((work / "tiny.toml").read_bytes())
    code, said = _process(work, line, **ASCII)
    assert "Traceback" not in said, said
    assert code == expected, said


@pytest.mark.parametrize("line", ["evaluate x --episodes 1", "resume x"] if BY_HAND else [])
def test_a_process_imports_no_module_that_a_file_names(fuzzer: Fuzzer, line: str):  # noqa: F811
    work = fuzzer._fresh() / "work"
    for path in (work / "x" / "experiment.json", *work.glob("x/runs/*/*.json")):
        path.write_text(path.read_text().replace('"algo": "sac"', '"algo": "payload:Agent"'))
    code, said = _process(work, line)
    assert "Traceback" not in said, said
    assert code == 2 or line.startswith("evaluate"), said
    assert not (work.parent / "outside" / "imported").exists()


def _process(work: Path, line: str, **variables: str) -> tuple[int, str]:
    environment = os.environ | {"PAC4SAC_FUZZ_OUTSIDE": str(work.parent / "outside")} | variables
    command = [sys.executable, "-P", "-m", "pac4sac", *line.split()]
    process = subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=300)
    return process.returncode, (process.stdout + process.stderr).decode(errors="replace")
