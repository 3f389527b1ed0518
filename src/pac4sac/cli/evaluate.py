"""`pac4sac evaluate`."""

import math
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.status import Status

from pac4sac.base.errors import UserError
from pac4sac.base.ranges import EPISODES, NON_NEGATIVE, check_value
from pac4sac.base.text import brief
from pac4sac.cli import arguments
from pac4sac.cli.shared import plain_table, show_whole_words
from pac4sac.training.options import make_options


@arguments.with_options("step_seconds")
@dataclass(frozen=True)
class Evaluate:
    """Let the trained agents act in fresh episodes, the same for every run, and show their
    returns."""

    # Folder of a run, an experiment or a study, an agent file, or an agent that ships.
    folder: arguments.Folder
    episodes: arguments.Number = 10  # Episodes of each run and policy.
    seed: arguments.Number = 0  # Seed of the episodes.
    best: bool = (
        False  # Take the weights of the best scheduled evaluation instead of the last ones.
    )
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        if self.episodes < 1 or self.seed < 0:
            raise UserError("--episodes must be at least 1 and --seed at least 0.")
        check_value("--episodes", self.episodes, int, EPISODES)
        check_value("--seed", self.seed, int, NON_NEGATIVE)
        how = make_options(1, arguments.options_of(self))
        from pac4sac.cli.training_summary import TableNumber, mean_and_sd
        from pac4sac.runs.reading import read_below, tell_damage
        from pac4sac.training.agent_file import load
        from pac4sac.training.evaluation import Episodes, evaluate, policies_of

        agents = self.agent_files()

        title = (
            "Returns of one episode"
            if self.episodes == 1
            else f"Returns of {self.episodes} episodes"
        )
        table = plain_table(title, "run", "policy", right=("mean ± sd", "lowest", "highest"))
        tell_damage(*read_below(self.folder))
        evaluated = 0
        with console.status("reading the agents …") as status:
            for number, path in enumerate(agents, 1):
                trained = load(path)
                run = trained.run
                fresh = (
                    trained.agent,
                    trained.state,
                    run.task,
                    [self.seed],
                    self.episodes,
                    "command",
                )
                for policy in policies_of(trained.agent):
                    tell = partial(
                        _tell, status, f"{run.id}, {number} of {len(agents)}: {policy} policy"
                    )
                    played = Episodes(*fresh, step_seconds=how.step_seconds, progress=tell)
                    returns = [
                        value
                        for value in evaluate(played, policy)[0].tolist()
                        if not math.isnan(value)
                    ]
                    spread = mean_and_sd([TableNumber(value) for value in returns])
                    shown = (
                        (spread, brief(min(returns)), brief(max(returns)))
                        if returns
                        else ("failed", "", "")
                    )
                    table.add_row(run.id, policy, *shown)
                    evaluated += len(returns)
        show_whole_words(console, table)
        return 0 if evaluated else 1  # a warning has said why

    def agent_files(self) -> list[Path]:
        """Of all runs below a folder; those that have none yet are told, and do not hold up the
        others."""
        from pac4sac.runs.reading import find_runs
        from pac4sac.training.agent_file import AGENT, agent_file

        if not self.folder.is_dir():
            if self.best:
                raise UserError(
                    "--best takes weights from the folder of a run, an experiment or a study; "
                    "give one."
                )
            return [agent_file(self.folder)]
        wanted = [
            run / ("best.safetensors" if self.best else AGENT) for run in find_runs(self.folder)
        ]
        agents = [path for path in wanted if path.is_file()]
        if missing := [path for path in wanted if path not in agents]:
            first, others = missing[0].parent, len(missing) - 1
            which = f"{first} and {others} more hold" if others else f"{first} holds"
            hint = (
                "train with --evaluate-every" if self.best else "train up to the first checkpoint"
            )
            told = f"{which} no {missing[0].name}; {hint}."
            if not agents:
                raise UserError(told)
            warnings.warn(told, stacklevel=1)
        return agents


def _tell(status: Status, about: str, step: int, longest: int) -> None:
    status.update(f"{about}, step {step:,} of {longest:,} at most …")
