"""Reading runs, writing reports and planning a command need no torch; training needs no scipy."""

import subprocess
import sys
from pathlib import Path

import pytest
from report_folders import own_task, write_run

PROGRAM = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, Blocker())
import importlib, pkgutil
from pathlib import Path
import pac4sac.runs, pac4sac.report

for package in (pac4sac.runs, pac4sac.report):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
from pac4sac.report.report import write_report

assert write_report([Path(sys.argv[1])], Path(sys.argv[2])).page.is_file()
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("pac4sac.")}
assert not loaded & {"agents", "training", "paper", "studies"}, loaded
"""


def test_runs_and_reports_import_no_torch(tmp_path: Path) -> None:
    for algo in ("sac", "pac4sac"):
        write_run(tmp_path / "runs", own_task(), algo, 0)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "runs"), str(tmp_path / "report")]
    subprocess.run(command, check=True)


COMMAND = """
import sys
from pac4sac.cli.main import main

assert main(sys.argv[1:]) == 0
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    "words", ["--help", "train --help", "list tasks", "list algos", "list studies", "report"]
)
def test_commands_that_do_not_train_import_no_torch(words: str, tmp_path: Path) -> None:
    arguments = words.split()
    if words == "report":
        write_run(tmp_path / "runs", own_task(), "sac", 0)
        arguments += [str(tmp_path / "runs"), "--out", str(tmp_path / "report")]
    command = [sys.executable, "-c", COMMAND, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_training_does_not_import_unneeded_packages() -> None:
    program = (
        "import sys, pac4sac.training.experiment, pac4sac.cli.training_summary\n"
        "slow = {'scipy.stats', 'scipy.optimize', 'matplotlib', 'pandas', 'sympy'}\n"
        "assert not slow & sys.modules.keys(), slow & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
