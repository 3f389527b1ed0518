"""The data files of this package: the paper's numbers, other published numbers, and the long texts
of the paper's report."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pac4sac.runs.statistics import Summary

SEEDS = 5  # the paper does not state it for Table 2; five is our reading
FOLDER = Path(__file__).parent


class PaperTask(NamedTuple):
    r_limit: float
    e_max: int


class PaperCell(NamedTuple):
    """Hold a cell of Table 1 or 2: means with standard deviations over seeds.

    The regret is in units of return; the paper prints thousands.
    """

    regret: Summary
    episodes: Summary


def _cell(regret: float, regret_sd: float, episodes: float, episodes_sd: float) -> PaperCell:
    # The paper prints thousands with one decimal; rounding to hundreds removes float errors.
    in_returns = Summary(SEEDS, round(regret * 1000.0, 1), round(regret_sd * 1000.0, 1))
    return PaperCell(in_returns, Summary(SEEDS, episodes, episodes_sd))


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


TEXTS, PUBLISHED, _FILE = _read("texts.toml"), _read("published.toml"), _read("numbers.toml")
TASKS, ALGORITHMS, TERM_TITLES = (_FILE["titles"][name] for name in ("tasks", "table-1", "table-2"))
PAPER_TASKS = {task: PaperTask(*numbers) for task, numbers in _FILE["tasks"].items()}


def _table(name: str) -> dict[str, dict[str, PaperCell]]:
    """Return the cells of a table by task and row."""
    cells: dict[str, dict[str, PaperCell]] = {}
    for task, rows in _FILE[name].items():
        cells[task] = {row: _cell(*numbers) for row, numbers in rows.items()}
    return cells


TABLE_1, TABLE_2 = _table("table-1"), _table("table-2")
MEDIANS = {  # medians of the shooting figure, by metric and S
    metric: {int(shots): medians[place] for shots, medians in _FILE["shooting"].items()}
    for place, metric in enumerate(("regret", "episodes"))
}
COST = {algo: Summary(SEEDS, *seconds) for algo, seconds in _FILE["cost"].items()}


def paper_cell(task: str, algo: str) -> PaperCell | None:
    """Return the cell of Table 1; None if the paper has none."""
    return TABLE_1.get(task, {}).get(algo)
