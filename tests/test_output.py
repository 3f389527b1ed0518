"""Standard output that cannot be written, and words that only the parser knows."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_experiments import train

from pac4sac.cli.main import main

FULL = Path("/dev/full")
TINY = "--steps 20 --device cpu --backend eager --workers 0 --set width=4 batch=4 warmup=10"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output") / "x"
    return train(folder, steps=50, seeds=(0,), evaluate_every=0).folder


@contextlib.contextmanager
def full_output() -> Iterator[None]:
    """Direct standard output to a device that is always full."""
    with open(os.open(FULL, os.O_WRONLY), "w") as stream, contextlib.suppress(OSError):
        with contextlib.redirect_stdout(stream):
            yield
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "--help",
        "train --help",
        "list tasks",
        "list settings --algo sac",
        "report {x} --out {out}",
        "evaluate {x} --episodes 1",
        "study plan smoke --no-trial --out {out}",
        f"train Pendulum-v1 --algo sac {TINY} --out {{out}}",
    ],
)
def test_a_full_output_is_reported_in_one_sentence(
    experiment: Path, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with full_output():
        assert main(line.format(x=experiment, out=tmp_path / "out").split()) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("pac4sac: Standard output cannot be written (No space left on device)")
    assert "Traceback" not in said


@pytest.mark.parametrize("shell", ["nope", ""])
def test_completion_for_an_unknown_shell_is_refused(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tyro-print-completion", shell]) == 2
    assert "bash, zsh, tcsh, fish" in capsys.readouterr().err
