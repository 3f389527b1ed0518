"""`pac4sac reference`."""

from dataclasses import dataclass
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional

from pac4sac.cli import arguments
from pac4sac.cli.shared import plain_table, say


@dataclass(frozen=True)
class Reference:
    """Show the archived runs that ship with the package, to set yours beside them.

    In Python, pac4sac.reference() gives their learning curves.
    """

    task: Annotated[Positional[str | None], arguments.optional("TASK", "all four of the paper")] = (
        None
    )

    def run(self, console: Console) -> int:
        from pac4sac.report.tables import in_digits
        from pac4sac.runs.metrics import score_run
        from pac4sac.runs.reference import reference_runs
        from pac4sac.runs.statistics import summarise

        numbers = ("seeds\nsolved", "regret\n(1000s)", "episodes\nuntil\nsolved")
        table = plain_table(
            "Archived runs, mean ± deviation over seeds", "task", "algorithm", right=numbers
        )
        table.add_column("source", no_wrap=True)
        table.columns[0].no_wrap, named = True, ""
        for (task, label), runs in reference_runs(self.task).items():
            scores = [score for score in map(score_run, runs) if score is not None]
            regret, episodes = (
                summarise([getattr(score, name) for score in scores])
                for name in ("regret", "episodes")
            )
            shown = [
                in_digits(n, scale, int(n.mean < 100 * scale))
                for n, scale in ((regret, 1000), (episodes, 1))
            ]
            solved = f"{sum(score.solved for score in scores)} of {len(runs)}"
            table.add_row(
                task if task != named else "", label, solved, *shown, runs[0].about["source"]
            )
            named = task
        console.print(table)
        say(
            console,
            "Solved: five episodes in a row above the task's limit; a seed that never is "
            "counts with all episodes.",
        )
        say(console, "Regret: what the episodes before that miss to the limit, summed up.")
        return 0
