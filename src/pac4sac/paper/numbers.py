"""The paper's published numbers, to be shown beside ours."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.runs.statistics import Summary

SEEDS = 5  # Table 2 leaves its number of seeds open; five is our reading


@dataclass(frozen=True)
class MeanSd:
    """Mean ± standard deviation over seeds or repetitions."""

    mean: float
    sd: float

    @property
    def summary(self) -> Summary:
        return Summary(SEEDS, self.mean, self.sd)


@dataclass(frozen=True)
class PaperTask:
    r_limit: float
    e_max: int


@dataclass(frozen=True)
class PaperCell:
    """One cell of Table 1 or 2; the regret in units of return, where the paper prints thousands."""

    regret: MeanSd
    episodes: MeanSd


def _cell(regret: float, regret_sd: float, episodes: float, episodes_sd: float) -> PaperCell:
    # One decimal of a thousand is a whole hundred: rounding removes the dust of the multiplication.
    return PaperCell(MeanSd(round(regret * 1000.0, 1), round(regret_sd * 1000.0, 1)), MeanSd(episodes, episodes_sd))


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


TEXTS, _FILE = _read("texts.toml"), _read("numbers.toml")
PAPER_TASKS = {task: PaperTask(*numbers) for task, numbers in _FILE["tasks"].items()}
TABLE_1, TABLE_2 = (
    {task: {row: _cell(*numbers) for row, numbers in rows.items()} for task, rows in _FILE[name].items()}
    for name in ("table-1", "table-2")
)
MEDIANS = {  # of the shooting figure, by metric and S
    metric: {int(shots): medians[place] for shots, medians in _FILE["shooting"].items()}
    for place, metric in enumerate(("regret", "episodes"))
}
COST = {algo: MeanSd(*seconds) for algo, seconds in _FILE["cost"].items()}


def paper_cell(task: str, algo: str) -> PaperCell | None:
    """The cell of Table 1, None where the paper has none."""
    return TABLE_1.get(task, {}).get(algo)
