"""Measurements of the runs of a cohort, and their logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.agents.base import Agent
from pac4sac.base.stopping import StopRequest
from pac4sac.training.agent_file import AGENT, save_agent
from pac4sac.training.callbacks import Callback
from pac4sac.training.evaluation import Episodes, EvaluatedPolicy, evaluate, policies_of
from pac4sac.training.learner import Learner
from pac4sac.training.options import Options
from pac4sac.training.progress import Progress
from pac4sac.training.run import Run
from pac4sac.training.run_folder import RunFolder
from pac4sac.training.state_coverage import measure_coverage
from pac4sac.training.value_error import measure_value_errors


@dataclass
class CohortLogs:
    """Write the logs and the agents of a cohort's runs at the current step of its learner."""

    runs: Sequence[Run]
    folders: Sequence[RunFolder]
    options: Options
    watcher: Callback
    agent: Agent
    learner: Learner
    progress: Progress
    workers: int  # worker processes for the simulators of measurements
    stop: StopRequest  # interrupts measurements
    requested_ends: dict[int, str] = field(default_factory=dict)  # runs to end, with the reasons

    @property
    def seeds(self) -> list[int]:
        """Return the seed of each run."""
        return [run.seed for run in self.runs]

    def _log(self, run: int, kind: str, row: dict[str, Any]) -> None:
        """Append a row to a log, and record whether a callback wants to end the run."""
        self.folders[run].log(kind, row)
        if reason := self.watcher.on_log(self.runs[run], kind, row):
            self.requested_ends[run] = reason

    def episode(self, run: int) -> None:
        """Log the episode of a run that has ended."""
        returns, so_far = self.progress.returns[run], float(self.progress.so_far[run])
        row = {
            "episode": len(returns),
            "step": self.learner.step,
            "return": so_far,
            "length": int(self.progress.length[run]),
        }
        self._log(run, "episodes", row)
        returns.append(so_far)

    def metrics(self) -> None:
        """Log the means of the metrics over the steps since the last call."""
        values = self.learner.read_metrics()
        for run in self.progress.running():
            if not np.isnan(values[:, run]).all():
                row = dict(zip(self.agent.metric_names, values[:, run].tolist(), strict=True))
                self._log(run, "metrics", {"step": self.learner.step, **row})

    def evaluate(self, runs: Sequence[int]) -> None:
        """Evaluate runs, and save the agents of the best scheduled evaluations.

        If a run has a shooting policy, the return of that policy decides which agent is best.
        """
        if not runs or not self.options.evaluation_episodes:
            return
        means: dict[int, float] = {}
        for policy in policies_of(self.agent):
            means |= self._evaluate_policy(runs, policy)
        if self.options.evaluate_every:
            for run, mean in means.items():
                self._keep_best(run, mean)

    def _evaluate_policy(self, runs: Sequence[int], policy: EvaluatedPolicy) -> dict[int, float]:
        """Evaluate a policy for all runs that have it, and return their mean returns."""
        played = Episodes(
            self.agent,
            self.learner.state,
            self.runs[0].task,
            self.seeds,
            self.options.evaluation_episodes,
            str(self.learner.step),
            workers=self.workers,
            only=runs,
            stop=self.stop,
            step_seconds=self.options.step_seconds,
        )
        returns = evaluate(played, policy)
        if policy == "shooting":
            shots = self.agent.shots(evaluating=True)
            runs = [run for run in runs if shots[run] > 1]
        for run in runs:
            self._log_evaluation(run, policy, returns[run], played)
        return {run: returns[run].mean().item() for run in runs}

    def _log_evaluation(
        self, run: int, policy: str, returns: NDArray[np.float64], played: Episodes
    ) -> None:
        row = {
            "step": self.learner.step,
            "policy": policy,
            "mean": returns.mean().item(),
            "returns": returns.tolist(),
        }
        if run in played.failures:
            row["failure"] = played.failures[run]
        self._log(run, "evaluations", row)

    def _keep_best(self, run: int, mean: float) -> None:
        """Save the agent if its evaluation was the best so far."""
        best = self.progress.best[run]
        if not np.isnan(mean) and (best is None or mean > best):
            self.progress.best[run] = mean
            self.save_agent(run, "best.safetensors")

    def bias(self, runs: Sequence[int]) -> None:
        """Measure and log the errors of the critics of runs."""
        if not runs or not self.options.bias_every:
            return
        step = self.learner.step
        errors = measure_value_errors(
            self.agent,
            self.learner.state,
            self.runs[0].task,
            self.seeds,
            self.options.bias_episodes,
            str(step),
            only=runs,
            workers=self.workers,
            stop=self.stop,
            step_seconds=self.options.step_seconds,
        )
        for run in runs:
            if row := errors[run].row():
                self._log(run, "bias", {"step": step} | row)

    def coverage(self, runs: Sequence[int]) -> None:
        """Measure and log the state coverage of runs."""
        if not runs or not self.options.coverage_every:
            return
        for run, coverage in enumerate(measure_coverage(self.learner)):
            if run in runs:
                self._log(run, "coverage", {"step": self.learner.step, **coverage._asdict()})

    def save_agent(self, run: int, name: str = AGENT) -> None:
        """Write the agent of a run to its folder."""
        save_agent(
            self.folders[run].path / name, self.runs[run], self.agent, self.learner.state, run
        )
