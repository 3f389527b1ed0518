"""The section on cost: seconds per step compared with the paper's, and time per solved run."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, product
from typing import Any

from pac4sac.base.text import duration
from pac4sac.paper.numbers import ALGORITHMS, COST, TASKS, TEXTS
from pac4sac.paper.rows import HORIZON, at_paper_setting
from pac4sac.report.cost import Machine, cost_blocks, machines
from pac4sac.report.sentences import listed
from pac4sac.report.tables import Block, Cell, Column, Section, Table, data, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundCost

COMPARABLE = 1.25  # largest ratio to SAC that counts as comparable
SOLVING = "cost-to-solve"  # study that times all tasks with their updates per step
Place = tuple[str, str]  # (task, algorithm)


def timed_per_step(costs: Sequence[FoundCost]) -> list[Machine]:
    """Return the machines on which the cost study was run."""
    return [machine for machine in machines(costs) if machine.study != SOLVING]


def paper_cost_section(
    costs: Sequence[FoundCost], table_1: Mapping[Place, Variant]
) -> Section | None:
    """Return the section on the cost per step and per solved run."""
    blocks: list[Block] = []
    if timed := timed_per_step(costs):
        intro = TEXTS["cost"].format(comparable=COMPARABLE)
        blocks += cost_blocks(timed, intro, COST)
    until_solved = CostUntilSolved(costs, table_1)
    if until_solved.places:
        blocks += until_solved.blocks()
    return Section("cost", "Cost", blocks) if blocks else None


class CostUntilSolved:
    """Compute the cost of a solved run.

    It is the steps of all runs until solved or ended, divided by the number of solved runs, times
    the seconds per step on each machine."""

    def __init__(self, costs: Sequence[FoundCost], table_1: Mapping[Place, Variant]) -> None:
        self.table_1 = table_1
        self.machines = [machine for machine in machines(costs) if machine.study == SOLVING]
        known = set(chain.from_iterable(machine.times for machine in self.machines))
        self.places = [place for place in product(TASKS, ALGORITHMS) if place in known]

    def thousand_steps(self, place: Place) -> float | None:
        """Return the thousands of steps per solved run."""
        variant = at_paper_setting(self.table_1.get(place))
        episodes = variant.values("episodes") if variant else []
        if variant is None or not episodes or not variant.solved:
            return None
        return sum(episodes) * HORIZON / 1000 / variant.solved

    def seconds(self, machine: Machine, place: Place) -> float | None:
        """Return the seconds per solved run on a machine."""
        seconds, thousands = machine.median_of(place), self.thousand_steps(place)
        return seconds * thousands if seconds and thousands else None

    def answer(self) -> str:
        """Return sentences with the fastest algorithm on each task, one per machine."""
        sentences = []
        for machine in self.machines:
            on_tasks = [
                f"{ALGORITHMS[algo]} on {TASKS[task]} ({duration(seconds)})"
                for task, (seconds, algo) in self._soonest(machine).items()
            ]
            if on_tasks:
                on_machine = f"On the machine “{machine.title}”"
                need = "the algorithm with the least time per solved run is"
                sentences.append(f"{on_machine}, {need} {listed(on_tasks)}.")
        return " ".join(sentences)

    def _soonest(self, machine: Machine) -> dict[str, tuple[float, str]]:
        """Return seconds and algorithm of the fastest, by task."""
        soonest: dict[str, tuple[float, str]] = {}
        for task, algo in self.places:
            if seconds := self.seconds(machine, (task, algo)):
                soonest[task] = min(soonest.get(task, (seconds, algo)), (seconds, algo))
        return soonest

    def blocks(self) -> list[Block]:
        """Return the text, the table and the notes on machines."""

        def solved(place: Place) -> Cell | None:
            variant = self.table_1.get(place)
            return Cell(variant.solved_text, variant.solved) if variant else None

        def numbers(place: Place) -> list[tuple[Any, ...]]:
            steps = self.thousand_steps(place)
            return [
                (*place, m.title, m.device, m.median_of(place), steps, self.seconds(m, place))
                for m in self.machines
            ]

        keys = "task algorithm machine device seconds thousand_steps seconds_per_solved"
        columns = [
            words("Task", lambda place: TASKS[place[0]]),
            words("Algorithm", lambda place: ALGORITHMS[place[1]]),
            Column("solved", solved),
            Column("thousand steps per solved run", self.thousand_steps, digits=1),
            data(*keys.split(), get=lambda numbers: numbers),
        ]
        for machine in self.machines:
            on_machine = partial(Column, group=machine.title)
            needed = partial(self.seconds, machine)
            columns.append(on_machine("seconds per 1,000 steps", machine.median_of, digits=2))
            columns.append(on_machine("per solved run", needed, show=duration))
        caption = "Wall-clock time per solved run, one run at a time"
        table = Table("cost-to-solve", caption, columns, self.places, numbers)
        return [TEXTS["cost_to_solve"], table, [machine.about for machine in self.machines]]
