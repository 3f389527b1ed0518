"""`pac4sac evaluate`."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.status import Status

from pac4sac.base.errors import UserError
from pac4sac.base.ranges import EPISODES, NON_NEGATIVE, check_value
from pac4sac.base.text import brief
from pac4sac.cli import arguments
from pac4sac.cli.shared import plain_table, show_whole_words
from pac4sac.training.options import Options, make_options

BEST = "best.safetensors"
HINTS = {  # how to get a missing file of a run
    "agent.safetensors": "train up to the first checkpoint",
    BEST: "train with --evaluate-every",
}


@arguments.with_options("step_seconds")
@dataclass(frozen=True)
class Evaluate:
    """Evaluate trained agents on new episodes; every run gets the same episodes."""

    # Evaluate the agents of this run, experiment or study folder, this agent file, or a
    # shipped agent.
    folder: arguments.Folder
    episodes: arguments.Number = 10  # Play this many episodes for each run and policy.
    seed: arguments.Number = 0  # Draw the episodes from this seed.
    # Evaluate on this task instead of the training task.
    task: Annotated[str | None, arguments.optional("TASK")] = None
    wrappers: arguments.Wrappers = field(default_factory=list)
    # Use the weights from the best scheduled evaluation instead of the last weights.
    best: bool = False
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        check_value("--episodes", self.episodes, int, EPISODES)
        check_value("--seed", self.seed, int, NON_NEGATIVE)
        how = make_options(1, arguments.options_of(self))
        arguments.parse_wrappers(self.wrappers)  # refuses invalid wrappers before reading
        from pac4sac.runs.reading import read_below, warn_of_damage

        agents = self.agent_files()
        warn_of_damage(*read_below(self.folder))
        count = "one episode" if self.episodes == 1 else f"{self.episodes} episodes"
        numbers = ("mean ± std", "lowest", "highest")
        table = plain_table(f"Returns of {count}", "run", "policy", right=numbers)
        evaluated = 0
        with console.status("reading the agents …") as status:
            for number, path in enumerate(agents, 1):
                about = f"{number} of {len(agents)}"
                for run, policy, returns in self.returns(path, how, status, about):
                    table.add_row(run, policy, *_summary(returns))
                    evaluated += len(returns)
        show_whole_words(console, table)
        return 0 if evaluated else 1  # a warning has already given the reason

    def returns(
        self, path: Path, how: Options, status: Status, about: str
    ) -> Iterator[tuple[str, str, list[float]]]:
        """Yield run, policy and returns, without failed episodes."""
        from pac4sac.training.agent_evaluation import evaluate
        from pac4sac.training.evaluation import policies_of
        from pac4sac.training.trained_agent import load

        trained = load(path)
        for policy in policies_of(trained.agent):
            evaluation = evaluate(
                trained,
                self.task,
                wrappers=arguments.parse_wrappers(self.wrappers),
                episodes=self.episodes,
                seed=self.seed,
                shooting=policy == "shooting",
                step_seconds=how.step_seconds,
                progress=partial(_tell, status, f"{trained.run.id}, {about}: {policy} policy"),
            )
            yield trained.run.id, policy, evaluation.returns.tolist()

    def agent_files(self) -> list[Path]:
        """Return the agent files to evaluate."""
        from pac4sac.training.agent_file import AGENT, agent_file

        if self.folder.is_dir():
            return _agents_below(self.folder, BEST if self.best else AGENT)
        if self.best:
            raise UserError(
                "--best needs a folder; give the folder of a run, an experiment or a study."
            )
        return [agent_file(self.folder)]


def _agents_below(folder: Path, name: str) -> list[Path]:
    """Return the files of this name in all runs below a folder, and warn about runs without the
    file."""
    from pac4sac.runs.reading import find_runs

    runs = find_runs(folder)
    missing = [run for run in runs if not (run / name).is_file()]
    if missing:
        count = len(missing) - 1
        hold = f" and {count} more have" if count else " has"
        problem = f"{missing[0]}{hold} no {name}; {HINTS[name]}."
        if len(missing) == len(runs):
            raise UserError(problem)
        warnings.warn(problem, stacklevel=1)
    return [run / name for run in runs if run not in missing]


def _summary(returns: Sequence[float]) -> tuple[str, str, str]:
    """Return mean, lowest and highest return for the table."""
    from pac4sac.cli.result_table import TableNumber, mean_and_std

    if not returns:
        return "failed", "", ""
    spread = mean_and_std([TableNumber(value) for value in returns])
    return spread, brief(min(returns)), brief(max(returns))


def _tell(status: Status, about: str, step: int, longest: int) -> None:
    status.update(f"{about}, step {step:,} of {longest:,} at most …")
