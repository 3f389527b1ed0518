"""The training loop of a cohort: act, send, update while the simulators step, collect, store, log, checkpoint."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from pac4sac.errors import UserError
from pac4sac.reporting.metrics import solved_at
from pac4sac.settings import AT_LEAST_ONE, NON_NEGATIVE, Interval
from pac4sac.tasks.pool import EnvPool, Transitions
from pac4sac.training import agentfile, backends, checkpoint
from pac4sac.training.callbacks import Callback
from pac4sac.training.checkpoint import Checkpoint
from pac4sac.training.evaluation import Policy, evaluate
from pac4sac.training.folder import RunFolder
from pac4sac.training.learner import Learner
from pac4sac.training.runs import Run, make_agent
from pac4sac.training.signals import StopRequest


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, as opposed to what: nothing here changes what a run learns on the same kind of device."""

    steps: int
    device: str = "auto"
    backend: str = "auto"
    workers: int | Literal["auto"] = "auto"
    threads: int | Literal["auto"] = "auto"
    log_every: int = 1000
    checkpoint_every: int = 5000
    evaluate_every: int = 0  # 0: at the end only
    evaluation_episodes: int = 5
    stop_when_solved: bool = False
    start_from: str | None = None

    def __post_init__(self) -> None:
        allowed: dict[str, Interval] = {
            "steps": AT_LEAST_ONE,
            "log_every": AT_LEAST_ONE,
            "checkpoint_every": AT_LEAST_ONE,
            "evaluate_every": NON_NEGATIVE,
            "evaluation_episodes": NON_NEGATIVE,
        }
        for name, interval in allowed.items():
            if getattr(self, name) not in interval:
                raise UserError(f"{name} must be {interval}, not {getattr(self, name)}.")
        for name in ("workers", "threads"):
            value = getattr(self, name)
            if value != "auto" and value not in (NON_NEGATIVE if name == "workers" else AT_LEAST_ONE):
                raise UserError(f"{name} must be a whole number or auto, not {value}.")


class Cohort:
    """Runs in lockstep, from their first step or their last checkpoint to their end."""

    def __init__(self, root: Path, name: str, runs: Sequence[Run], options: Options, watcher: Callback) -> None:
        self.root, self.folder = root, root / "cohorts" / name
        self.runs, self.options, self.watcher = tuple(runs), options, watcher
        self.task = runs[0].task
        self.seeds = [run.seed for run in runs]
        self.fingerprint = checkpoint.fingerprint({"runs": [run.describe() for run in runs]})
        self.folders = [RunFolder(root, run) for run in runs]
        self.status: list[str] = ["running"] * len(runs)
        self.details: list[str | None] = [None] * len(runs)
        self.returns: list[list[float]] = [[] for _ in runs]  # of all finished training episodes
        self.so_far = np.zeros(len(runs))  # return of the present episode
        self.length = np.zeros(len(runs), dtype=np.int64)
        self.best: list[float | None] = [None] * len(runs)  # mean return of the best scheduled evaluation

    # --- start and end

    def train(self, stop: StopRequest) -> bool:
        """Train until all runs are done; False where a stop was asked for before that."""
        saved = checkpoint.load_newest(self.folder, self.fingerprint)
        placement = self._placement()
        device = backends.pick_device(placement.get("device", self.options.device))
        workers = placement.get("workers", self.options.workers)
        with EnvPool(self.task, self.seeds, workers) as self.pool:
            self.agent = make_agent(self.runs, self.pool.observation_size, self.pool.action_size)
            self.learner = Learner(self.agent, self.seeds, self.options.steps, device)
            self._settle_placement(placement, device)
            if saved is None:
                self._begin()
            else:
                self._resume(saved)
            self.watcher.on_start(self.root, self.runs, self.options.steps, self.learner.step)
            try:
                return self._loop(stop)
            finally:
                self.watcher.on_end(self.root)

    def _placement(self) -> dict[str, Any]:
        """Device, backend, threads and workers of an earlier start: a resume must compute in the same way."""
        path = self.folder / "placement.json"
        try:
            return dict(json.loads(path.read_bytes())) if path.exists() else {}
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}).") from error

    def _settle_placement(self, placement: dict[str, Any], device: torch.device) -> None:
        updates = self.options.steps * self.agent.config.updates_per_step
        wanted = backends.choose_backend(placement.get("backend", self.options.backend), device, updates)
        threads = placement.get("threads", self.options.threads)
        if threads != "auto":
            torch.set_num_threads(threads)
        backend = backends.prepare(self.learner, wanted)
        if placement and backend != placement["backend"]:
            raise UserError(f"The {wanted} backend, with which this experiment began, does not work here any more.")
        if threads == "auto":
            threads = backends.choose_threads(self.learner)
            torch.set_num_threads(threads)
        if not placement:
            self.folder.mkdir(parents=True, exist_ok=True)
            settled = {"device": str(device), "backend": backend, "threads": threads, "workers": self.pool.workers}
            checkpoint.write_whole(self.folder / "placement.json", json.dumps(settled).encode())

    def _begin(self) -> None:
        if self.options.start_from:
            agentfile.start_from(self.options.start_from, self.agent, self.learner.state)
        for folder in self.folders:
            folder.cut_back({})
            folder.describe("running")
        self.learner.begin(self.pool.reset())

    def _resume(self, saved: Checkpoint) -> None:
        progress = saved.progress
        self.learner.restore(saved.learner)
        self.status, self.details = progress["status"], progress["details"]
        self.returns, self.best = progress["returns"], progress["best"]
        self.so_far = np.array(progress["so_far"])
        self.length = np.array(progress["length"], dtype=np.int64)
        for run, folder in enumerate(self.folders):
            folder.cut_back(progress["logs"][run])
            if self.status[run] == "finished" and not self._solved(run) and self.learner.step < self.options.steps:
                self.status[run] = "running"  # the experiment was extended
            folder.describe(self.status[run], self.details[run])
        self.pool.restore(saved.pool)

    def _loop(self, stop: StopRequest) -> bool:
        started = time.monotonic()
        while self.learner.step < self.options.steps and "running" in self.status:
            self._step()
            step = self.learner.step
            self.watcher.on_step(step)
            if stop.wanted:
                self._save()
                return False
            if step % self.options.checkpoint_every == 0 and step < self.options.steps:
                self._save()
                self._time(step, started)
        self._finish()
        self._time(self.learner.step, started)
        return True

    # --- one lockstep step

    def _step(self) -> None:
        learner, updates = self.learner, self.agent.config.updates_per_step
        self.pool.send(learner.act())
        if learner.step >= self._first_update:
            for _ in range(updates):  # while the simulators step; they see every transition but the one under way
                learner.update()
        else:
            learner.skip_updates(updates)
        seen = self.pool.receive()
        learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
        self.so_far += seen.reward
        self.length += 1
        ended = seen.terminated | seen.truncated
        if ended.any() or seen.failed.any() or learner.step % self.options.log_every == 0:
            self._bury_the_dead(seen)
            self._end_episodes(ended)
        if learner.step % self.options.log_every == 0:
            self._log_metrics()
        if self.options.evaluate_every and learner.step % self.options.evaluate_every == 0:
            self._evaluate(keep_best=True)

    @property
    def _first_update(self) -> int:
        return min(self.agent.learning_starts())

    def _bury_the_dead(self, seen: Transitions) -> None:
        """Runs that diverged or whose simulator failed are out from here on; what they did since is not logged."""
        steps = self.learner.state["diverged_step"].tolist()
        for run in self._running():
            if seen.failed[run]:
                self._end_run(run, "failed", self.pool.failures[run])
            elif steps[run] >= 0:
                name = self.agent.trained()[int(self.learner.state["diverged_net"][run])]
                self._end_run(run, "diverged", f"non-finite {name} gradient at step {steps[run]}")

    def _end_episodes(self, ended: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        if not ended.any():
            return
        for run in self._running():
            if not ended[run]:
                continue
            episode = len(self.returns[run])
            self.returns[run].append(float(self.so_far[run]))
            row = {"episode": episode, "step": self.learner.step, "return": float(self.so_far[run])}
            self._log(run, "episodes", row | {"length": int(self.length[run])})
            if self.options.stop_when_solved and self._solved(run):
                self._end_run(run, "finished", f"solved at step {self.learner.step}")
        self.so_far[ended] = 0
        self.length[ended] = 0
        self.agent.end_of_episode(self.learner.state, torch.from_numpy(ended.copy()).to(self.learner.device))

    def _end_run(self, run: int, status: str, detail: str | None) -> None:
        self.status[run] = status
        self.details[run] = detail
        self.learner.freeze(run)
        self.pool.park(run)
        self.folders[run].describe(status, detail)
        self.watcher.on_status(self.runs[run], status, detail)

    def _running(self) -> list[int]:
        return [run for run, status in enumerate(self.status) if status == "running"]

    def _solved(self, run: int) -> bool:
        return self.task.r_limit is not None and solved_at(self.returns[run], self.task.r_limit) is not None

    # --- what is written

    def _log(self, run: int, kind: str, row: dict[str, Any]) -> None:
        self.folders[run].log(kind, row)
        self.watcher.on_log(self.runs[run], kind, row)

    def _log_metrics(self) -> None:
        values = self.learner.read_metrics()
        for run in self._running():
            if not np.isnan(values[:, run]).all():
                row = dict(zip(self.agent.metric_names, values[:, run].tolist(), strict=True))
                self._log(run, "metrics", {"step": self.learner.step, **row})

    def _evaluate(self, keep_best: bool) -> None:
        """The deterministic policy and, for runs that shoot, the shooting one; the latter decides which is best."""
        step, episodes = self.learner.step, self.options.evaluation_episodes
        shots = agentfile.shots_of(self.agent)
        policies: list[Policy] = ["greedy", "shooting"] if max(shots) > 1 else ["greedy"]
        means = np.full(len(self.runs), np.nan)
        for policy in policies:
            returns = evaluate(
                self.agent, self.learner.state, self.task, self.seeds, policy, episodes, str(step), self.pool.workers
            )
            for run, status in enumerate(self.status):
                if status in ("running", "finished") and (policy == "greedy" or shots[run] > 1):
                    means[run] = returns[run].mean()
                    row = {"step": step, "policy": policy, "mean": means[run].item(), "returns": returns[run].tolist()}
                    self._log(run, "evaluations", row)
        for run, mean in enumerate(means.tolist()):
            best = self.best[run]
            if keep_best and not np.isnan(mean) and (best is None or mean > best):
                self.best[run] = mean
                self._save_agent(run, "best.safetensors")

    def _save_agent(self, run: int, name: str = "agent.safetensors") -> None:
        path = self.folders[run].path / name
        agentfile.save_agent(path, self.runs[run], self.agent, self.learner.state, run)

    def _save(self) -> None:
        for run in range(len(self.runs)):
            self._save_agent(run)
        progress = {
            "status": self.status,
            "details": self.details,
            "returns": self.returns,
            "best": self.best,
            "so_far": self.so_far.tolist(),
            "length": self.length.tolist(),
            "logs": [folder.lengths() for folder in self.folders],
        }
        pool = checkpoint.as_arrays(self.pool.snapshot())
        content = Checkpoint(self.learner.export(), pool, progress)
        checkpoint.save(self.folder, self.fingerprint, self.learner.step, content)

    def _finish(self) -> None:
        if "running" in self.status and self.options.evaluation_episodes:
            self._evaluate(keep_best=bool(self.options.evaluate_every))
        for run in self._running():
            self._end_run(run, "finished", None)
        self._save()

    def _time(self, step: int, started: float) -> None:
        with (self.folder / "times.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "seconds": round(time.monotonic() - started, 3)}) + "\n")
