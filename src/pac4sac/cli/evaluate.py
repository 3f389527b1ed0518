"""`pac4sac evaluate`."""

import math
import warnings
from collections.abc import Iterator, Sequence
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
from pac4sac.training.options import Options, make_options

# how to get a file that a run does not have yet
HINTS = {
    "agent.safetensors": "train up to the first checkpoint",
    "best.safetensors": "train with --evaluate-every",
}


@arguments.with_options("step_seconds")
@dataclass(frozen=True)
class Evaluate:
    """Evaluate trained agents on new episodes, the same for every run, and show their returns."""

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
        from pac4sac.runs.reading import read_below, warn_of_damage

        agents = self.agent_files()
        title = f"Returns of {self.episodes} episodes"
        if self.episodes == 1:
            title = "Returns of one episode"
        table = plain_table(title, "run", "policy", right=("mean ± sd", "lowest", "highest"))
        warn_of_damage(*read_below(self.folder))
        evaluated = 0
        with console.status("reading the agents …") as status:
            for number, path in enumerate(agents, 1):
                about = f"{number} of {len(agents)}"
                for run, policy, returns in self.returns(path, how, status, about):
                    table.add_row(run, policy, *_summary(returns))
                    evaluated += len(returns)
        show_whole_words(console, table)
        return 0 if evaluated else 1  # a warning has said why

    def returns(
        self, path: Path, how: Options, status: Status, about: str
    ) -> Iterator[tuple[str, str, list[float]]]:
        """Yield run, policy and the returns of its episodes, without those that failed."""
        from pac4sac.training.agent_file import load
        from pac4sac.training.evaluation import Episodes, evaluate, policies_of

        trained = load(path)
        for policy in policies_of(trained.agent):
            played = Episodes(
                trained.agent,
                trained.state,
                trained.run.task,
                seeds=[self.seed],
                count=self.episodes,
                occasion="command",
                step_seconds=how.step_seconds,
                progress=partial(_tell, status, f"{trained.run.id}, {about}: {policy} policy"),
            )
            returns = evaluate(played, policy)[0].tolist()
            yield trained.run.id, policy, [value for value in returns if not math.isnan(value)]

    def agent_files(self) -> list[Path]:
        """Return the agent files of all runs below a folder, with a warning of runs that have none
        yet."""
        from pac4sac.runs.reading import find_runs
        from pac4sac.training.agent_file import AGENT, agent_file

        if not self.folder.is_dir():
            if self.best:
                raise UserError(
                    "--best takes weights from the folder of a run, an experiment or a study; "
                    "give one."
                )
            return [agent_file(self.folder)]
        name = "best.safetensors" if self.best else AGENT
        wanted = [run / name for run in find_runs(self.folder)]
        agents = [path for path in wanted if path.is_file()]
        if len(agents) < len(wanted):
            missing = [path.parent for path in wanted if path not in agents]
            more = f" and {len(missing) - 1} more hold" if len(missing) > 1 else " holds"
            told = f"{missing[0]}{more} no {name}; {HINTS[name]}."
            if not agents:
                raise UserError(told)
            warnings.warn(told, stacklevel=1)
        return agents


def _summary(returns: Sequence[float]) -> tuple[str, str, str]:
    from pac4sac.cli.training_summary import TableNumber, mean_and_sd

    if not returns:
        return "failed", "", ""
    spread = mean_and_sd([TableNumber(value) for value in returns])
    return spread, brief(min(returns)), brief(max(returns))


def _tell(status: Status, about: str, step: int, longest: int) -> None:
    status.update(f"{about}, step {step:,} of {longest:,} at most …")
