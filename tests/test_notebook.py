"""The notebook of the docs runs as it stands, with fewer steps, and gives what its page shows."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from notebook import run_cells

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first-steps.ipynb"
FEWER = {
    "STEPS = 4000": "STEPS = 1000",
    '"warmup": 500': '"warmup": 900',
    'backend="eager"': 'backend="eager", evaluation_episodes=1',
    "range(160)": "range(40)",
}


def kinds(cells):
    return [[output["output_type"] for output in cell.get("outputs", [])] for cell in cells]


def test_the_notebook_runs_and_matches_its_page(tmp_path, monkeypatch):
    pytest.importorskip(
        "pandas", reason="the notebook reads results as data frames: install the extra pandas"
    )
    text = NOTEBOOK.read_text()
    shown = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in shown[1:])  # it was run before it was published
    monkeypatch.chdir(tmp_path)
    run = run_cells(json.loads(text), FEWER)
    assert kinds(run) == kinds(shown)
    assert (tmp_path / "experiments").is_dir()
