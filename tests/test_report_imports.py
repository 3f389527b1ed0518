"""What a report of a user's runs executes: no module of the paper."""

import subprocess
import sys
from pathlib import Path

import pytest
from report_folders import own_task, task, write_run

PAPER = "print(sorted(name for name in sys.modules if name.startswith('pac4sac.paper')))"
COMPARE = """
import sys, pac4sac
settings = {"width": 8, "batch": 4, "warmup": 8}
found = pac4sac.compare("Pendulum-v1", "sac,ddpg", seeds=1, steps=60, settings=settings,
                        out=sys.argv[1], parallel=1, evaluation_episodes=1)
assert found.page.is_file() and len(found.rows) == 2
"""
REPORT = """
import sys
from pac4sac.cli.main import main
assert main(["report", sys.argv[1]]) == 0
"""
LIVE_PAGE = """
import sys
from pathlib import Path
from pac4sac.studies.live_page import LivePage
from pac4sac.studies.watcher import Watcher
page = LivePage(Watcher(), 0)
page.title, page.root = "A study", Path(sys.argv[1])
assert b"Pendulum-v1" in page.page()
"""


def printed(program: str, *arguments: str) -> str:
    """Run a program in a process of its own, and return the last line that it prints."""
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for algo in ("sac", "pac4sac"):
        write_run(tmp_path / "runs", own_task(), algo, 0)
        write_run(tmp_path / "paper", task("cartpole-swingup"), algo, 0)
    return tmp_path


@pytest.mark.parametrize("program", [REPORT, LIVE_PAGE])
def test_reports_execute_no_module_of_the_paper(runs: Path, program: str) -> None:
    assert printed(program + PAPER, str(runs)) == "[]"


def test_compare_executes_no_module_of_the_paper(tmp_path: Path) -> None:
    assert printed(COMPARE + PAPER, str(tmp_path / "compared")) == "[]"


def test_the_paper_sections_need_the_flag_paper(runs: Path) -> None:
    program = REPORT.replace("sys.argv[1]]", 'sys.argv[1], "--paper"]') + PAPER
    assert "pac4sac.paper.report" in printed(program, str(runs))
    assert (runs / "report" / "tables" / "table-1.csv").is_file()
