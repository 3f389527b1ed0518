"""The data files of this package: the paper's published numbers, to be shown beside ours, and those
that others published; the long texts of a report; the studies that are shipped."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pac4sac.runs.statistics import Summary

SEEDS = 5  # Table 2 leaves its number of seeds open; five is our reading
FOLDER = Path(__file__).parent
SHIPPED_STUDIES = FOLDER / "studies"  # one TOML file each


class PaperTask(NamedTuple):
    r_limit: float
    e_max: int


class PaperCell(NamedTuple):
    """One cell of Table 1 or 2: means with deviations over seeds. The regret is in units of return,
    where the paper prints thousands."""

    regret: Summary
    episodes: Summary


def _cell(regret: float, regret_sd: float, episodes: float, episodes_sd: float) -> PaperCell:
    # One decimal of a thousand is a whole hundred: rounding removes the dust of the multiplication.
    in_returns = Summary(SEEDS, round(regret * 1000.0, 1), round(regret_sd * 1000.0, 1))
    return PaperCell(in_returns, Summary(SEEDS, episodes, episodes_sd))


@cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def shipped_study(name: str) -> dict[str, Any]:
    """The definition of a study of the package, as it is written."""
    return _read(SHIPPED_STUDIES / f"{name}.toml")


TEXTS, PUBLISHED, _FILE = (
    _read(FOLDER / "texts.toml"),
    _read(FOLDER / "published.toml"),
    _read(FOLDER / "numbers.toml"),
)
TASKS, ALGORITHMS, TERM_TITLES = (_FILE["titles"][name] for name in ("tasks", "table-1", "table-2"))
PAPER_TASKS = {task: PaperTask(*numbers) for task, numbers in _FILE["tasks"].items()}
TABLE_1, TABLE_2 = (
    {
        task: {row: _cell(*numbers) for row, numbers in rows.items()}
        for task, rows in _FILE[name].items()
    }
    for name in ("table-1", "table-2")
)
MEDIANS = {  # of the shooting figure, by metric and S
    metric: {int(shots): medians[place] for shots, medians in _FILE["shooting"].items()}
    for place, metric in enumerate(("regret", "episodes"))
}
COST = {algo: Summary(SEEDS, *seconds) for algo, seconds in _FILE["cost"].items()}


def paper_cell(task: str, algo: str) -> PaperCell | None:
    """The cell of Table 1, None where the paper has none."""
    return TABLE_1.get(task, {}).get(algo)
