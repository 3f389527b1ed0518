"""The paper's published numbers, to be shown beside ours."""

from dataclasses import dataclass

SEEDS = 5  # Table 2 leaves its number of seeds open; five is our reading


@dataclass(frozen=True)
class Cell:
    """Mean ± standard deviation over seeds or repetitions."""

    mean: float
    sd: float


@dataclass(frozen=True)
class PaperTask:
    r_limit: float
    e_max: int


@dataclass(frozen=True)
class PaperCell:
    """One cell of Table 1 or 2; the regret in units of return, where the paper prints thousands."""

    regret: Cell
    episodes: Cell


@dataclass(frozen=True)
class Shooting:
    """One box of the shooting figure, read off the picture."""

    median_regret: float
    median_episodes: float


PAPER_TASKS = {
    "cartpole-swingup": PaperTask(850.0, 40),
    "half-cheetah": PaperTask(2000.0, 250),
    "ant": PaperTask(2500.0, 500),
    "humanoid": PaperTask(3500.0, 500),
}


def _cell(regret: float, regret_sd: float, episodes: float, episodes_sd: float) -> PaperCell:
    # One decimal of a thousand is a whole hundred: rounding removes the dust of the multiplication.
    return PaperCell(Cell(round(regret * 1000.0, 1), round(regret_sd * 1000.0, 1)), Cell(episodes, episodes_sd))


# Thousands of regret, then episodes until solved, by task and algorithm.
TABLE_1 = {
    "cartpole-swingup": {
        "ddpg": _cell(7.2, 1.0, 34.2, 3.8),
        "sac": _cell(6.5, 0.3, 24.4, 5.7),
        "oac": _cell(22.7, 1.4, 40.0, 0.0),
        "pac4sac": _cell(5.7, 0.3, 22.0, 5.1),
    },
    "half-cheetah": {
        "ddpg": _cell(317.8, 24.0, 250.0, 0.0),
        "sac": _cell(166.8, 10.4, 250.0, 0.0),
        "oac": _cell(213.0, 15.5, 250.0, 0.0),
        "pac4sac": _cell(132.8, 10.8, 223.6, 14.6),
    },
    "ant": {
        "ddpg": _cell(210.8, 21.2, 298.6, 56.4),
        "sac": _cell(165.5, 17.0, 302.0, 44.8),
        "oac": _cell(443.8, 128.3, 315.0, 82.6),
        "pac4sac": _cell(113.3, 10.9, 146.4, 12.3),
    },
    "humanoid": {
        "ddpg": _cell(906.2, 7.8, 500.0, 0.0),
        "sac": _cell(539.0, 20.0, 482.2, 15.9),
        "oac": _cell(1223.7, 44.5, 500.0, 0.0),
        "pac4sac": _cell(528.8, 36.5, 473.8, 18.5),
    },
}

# By task and the terms of the critic's loss: Bellman, conservative √(KL/N), exploration.
TABLE_2 = {
    "cartpole-swingup": {
        "bellman": _cell(6.5, 1.5, 24.6, 5.9),
        "bellman+conservative": _cell(5.9, 0.3, 25.4, 3.4),
        "bellman+exploration": _cell(7.1, 1.0, 17.0, 2.0),
        "bellman+conservative+exploration": _cell(5.7, 0.3, 22.0, 5.1),
    },
    "half-cheetah": {
        "bellman": _cell(182.2, 14.4, 250.0, 0.0),
        "bellman+conservative": _cell(141.6, 21.5, 205.2, 21.1),
        "bellman+exploration": _cell(153.0, 17.3, 211.6, 21.1),
        "bellman+conservative+exploration": _cell(132.8, 10.8, 223.6, 14.6),
    },
}

# Cartpole Swingup, by the number S of candidate actions.
SHOOTING = {
    1: Shooting(9205.0, 34.0),
    200: Shooting(7858.0, 23.0),
    400: Shooting(7887.0, 18.0),
    600: Shooting(7480.0, 28.0),
    800: Shooting(7669.0, 19.0),
    1000: Shooting(7071.0, 19.0),
}

# Seconds per 1000 steps of Cartpole Swingup on an Apple M2 Max.
COST = {
    "ddpg": Cell(5.64, 0.08),
    "sac": Cell(8.80, 0.09),
    "sac-nr": Cell(9.92, 0.13),
    "sac-fpi": Cell(6.09, 0.06),
    "pac4sac": Cell(8.20, 0.01),
}


def paper_cell(task: str, algo: str) -> PaperCell | None:
    """The cell of Table 1, None where the paper has none."""
    return TABLE_1.get(task, {}).get(algo)
