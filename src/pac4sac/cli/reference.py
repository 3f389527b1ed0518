"""`pac4sac reference`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import Positional

from pac4sac.cli import arguments
from pac4sac.cli.shared import plain_table, say

if TYPE_CHECKING:
    from pac4sac.runs.reading import RunRecord


@dataclass(frozen=True)
class Reference:
    """Show the results of the archived runs that ship with the package.

    In Python, pac4sac.reference() gives their learning curves.
    """

    # Show only the runs of this task.
    task: Annotated[Positional[str | None], arguments.optional("TASK", "all tasks")] = None

    def run(self, console: Console) -> int:
        from pac4sac.runs.reference import reference_runs

        numbers = ("seeds\nsolved", "regret\n(1000s)", "episodes\nuntil\nsolved")
        table = plain_table(
            "Archived runs, mean ± std over seeds", "task, algorithm", right=numbers
        )
        table.add_column("source", no_wrap=True)
        table.columns[0].no_wrap = True
        previous = ""
        for (task, label), runs in reference_runs(self.task).items():
            if task != previous:
                table.add_row(task)
                previous = task
            table.add_row(f"  {label}", *metric_cells(runs), runs[0].about["source"])
        console.print(table)
        say(
            console,
            "Solved: five consecutive episodes above the task's solve threshold. A run that does "
            "not solve the task counts with all its episodes.",
        )
        say(
            console,
            "Regret: the sum of max(0, threshold − return) over the episodes until the task is "
            "solved.",
        )
        return 0


def metric_cells(runs: Sequence["RunRecord"]) -> list[str]:
    """Return the number of solved runs, with mean regret and mean episodes until solved."""
    from pac4sac.report.tables import in_digits
    from pac4sac.runs.metrics import score_run
    from pac4sac.runs.statistics import summarise

    scores = [score for run in runs if (score := score_run(run)) is not None]
    cells = [f"{sum(score.solved for score in scores)} of {len(runs)}"]
    for name, scale in (("regret", 1000), ("episodes", 1)):
        summary = summarise([getattr(score, name) for score in scores])
        cells.append(in_digits(summary, scale, int(summary.mean < 100 * scale)))
    return cells
