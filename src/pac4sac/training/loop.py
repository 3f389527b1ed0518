"""The training loop of a cohort: act, send, update while the simulators step, collect, store, log,
checkpoint."""

import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pac4sac.base.errors import DamagedCheckpoint, UserError
from pac4sac.base.stopping import Stopped, StopRequest
from pac4sac.runs.metrics import solved_at
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends, checkpoint
from pac4sac.training.agent_file import save_agent, start_from
from pac4sac.training.callbacks import Callback
from pac4sac.training.evaluation import Episodes, evaluate, policies_of
from pac4sac.training.options import Options
from pac4sac.training.run import Run, make_agent
from pac4sac.training.run_folder import Mark, RunFolder, check_that_nothing_was_saved, log_time
from pac4sac.training.state_coverage import measure_coverage
from pac4sac.training.value_error import measure_value_errors

SAVED = {
    "status": str,
    "details": str | None,
    "returns": list,
    "best": float | None,
    "so_far": float,
    "length": int,
}


class Cohort:
    """Runs in lockstep, from their first step or their last checkpoint to their end."""

    def __init__(
        self, root: Path, name: str, runs: Sequence[Run], options: Options, watcher: Callback
    ) -> None:
        self.root, self.folder = root, root / "cohorts" / name
        self.runs, self.options, self.watcher = tuple(runs), options, watcher
        self.task, self.seeds = runs[0].task, [run.seed for run in runs]
        self.fingerprint = checkpoint.fingerprint([run.describe() for run in runs])
        self.folders = [RunFolder(root, run) for run in runs]
        self.status: list[str] = [Status.RUNNING] * len(runs)
        self.details: list[str | None] = [None] * len(runs)
        self.returns: list[list[float]] = [[] for _ in runs]  # of all finished training episodes
        # mean return of the best scheduled evaluation
        self.best: list[float | None] = [None] * len(runs)
        self.so_far = np.zeros(len(runs))  # return of the present episode
        self.length = np.zeros(len(runs), dtype=np.int64)
        self.asked_to_end: dict[int, str] = {}  # runs by a callback, with its reason
        self.complete = False  # all is done and written, the final evaluation too
        self.measured = True  # False where a stop broke off what was due at this step

    # --- start and end

    def is_done(self) -> bool:
        """Whether its newest checkpoint leaves nothing to do."""
        self.saved = checkpoint.load_newest(self.folder, self.fingerprint, self._check)
        if self.saved is None:
            check_that_nothing_was_saved(self.folders, self.options.checkpoint_every)
            return False
        return bool(self.saved.progress["complete"]) and not any(self._to_be_extended(self.saved))

    def continue_with_todays_code(self) -> None:
        """Let today's code train the runs from their checkpoint on, and record which did before."""
        step = int(self.saved.learner["step"]) if self.saved else 0
        self.runs = tuple(run.continued(step) if run.edited() else run for run in self.runs)
        for folder, run in zip(self.folders, self.runs, strict=True):
            folder.run = run

    def prepare(self, pool: EnvPool, stop: StopRequest) -> bool:
        """Be ready for the next step, the first or that after the checkpoint that `is_done` found;
        False where a stop was asked for."""
        self.pool, self.stop, saved = pool, stop, self.saved
        self.agent = make_agent(self.runs, pool.observation_size, pool.action_size)
        if stop.reason is not None:  # before the compiler takes its time
            return False
        self._make_learner(saved.progress["placement"] if saved else None)
        try:
            logs = self._resume(saved) if saved else self._begin()
        except Stopped:  # while a simulator hung
            return False
        self.saved = None  # a replay takes much memory
        for run, folder in enumerate(self.folders):
            # first: a seal would be of what is then cut off
            folder.describe(self.status[run], self.details[run])
            folder.cut_back(logs[run])
        return True

    def _check(self, saved: checkpoint.Checkpoint) -> None:
        """Refuse a checkpoint that does not fit the logs beside it, or whose progress we did not
        write."""
        try:
            for name, kind in SAVED.items():
                if [isinstance(each, kind) for each in saved.progress[name]] != [True] * len(
                    self.runs
                ):
                    raise DamagedCheckpoint(
                        f"its progress does not tell the {name} of {len(self.runs)} runs"
                    )
            sum(map(sum, saved.progress["returns"]))  # of numbers
            (
                int(saved.learner["step"]),
                bool(saved.progress["complete"]),
                int(saved.progress["placement"]["threads"]),
            )
            for folder, marks in zip(self.folders, saved.progress["logs"], strict=True):
                folder.check(marks)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedCheckpoint(
                f"its progress is unreadable ({type(error).__name__})"
            ) from error

    def _to_be_extended(self, saved: checkpoint.Checkpoint) -> list[bool]:
        """Which runs ended with a smaller budget, rather than because they were solved or could not
        go on."""
        more, ends = int(saved.learner["step"]) < self.options.steps, (Status.FINISHED, None)
        return [
            more and end == ends
            for end in zip(saved.progress["status"], saved.progress["details"], strict=True)
        ]

    def _make_learner(self, saved: dict[str, Any] | None) -> None:
        """Settle how to compute: as in the checkpoint, since a resume must compute in the same
        way."""
        how = saved or {
            name: getattr(self.options, name)
            for name in ("device", "backend", "precision", "threads")
        }
        device = backends.pick_device(how["device"])
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.take_turn()
        self.learner, self.placement = backends.make_learner(
            self.agent, self.seeds, self.options.steps, how
        )
        if saved and self.placement["backend"] != saved["backend"]:
            raise UserError(
                f"The {saved['backend']} backend, with which this experiment began, does not "
                "work here."
            )
        for folder in self.folders:
            folder.computed = {
                name: self.placement[name] for name in ("device", "backend", "precision")
            }
            folder.computed["device"] = device.type

    def _begin(self) -> Sequence[dict[str, Mark]]:
        """Returns where the logs end."""
        if self.options.start_from:
            start_from(
                self.options.start_from, self.agent, self.learner.state, self.runs[0].started_from
            )
        self.learner.begin(self.pool.reset())
        return [{}] * len(self.runs)

    def _resume(self, saved: checkpoint.Checkpoint) -> Sequence[dict[str, Mark]]:
        """Returns where the logs end."""
        progress, extended = saved.progress, self._to_be_extended(saved)
        try:
            self.learner.restore(saved.learner)
            self.details, self.returns, self.best = (
                progress["details"],
                progress["returns"],
                progress["best"],
            )
            self.status = [
                Status.RUNNING if more else s
                for s, more in zip(progress["status"], extended, strict=True)
            ]
            self.so_far = np.array(progress["so_far"], dtype=np.float64)
            self.length = np.array(progress["length"], dtype=np.int64)
            self.measured = progress.get("measured", True)
            # older checkpoints call it "strayed", or say nothing of it
            mismatches = progress.get("replay_mismatch") or progress.get("strayed")
            for folder, steps in zip(
                self.folders, mismatches or [()] * len(self.runs), strict=True
            ):
                folder.replay_mismatch = list(steps)
            self.learner.begin(self.pool.restore(saved.pool))
            self._note_replay_mismatches()
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"The checkpoint in {self.folder} does not fit its runs ({error})."
            ) from error
        return list(progress["logs"])

    def take_turn(self) -> None:
        """On a GPU, compute behind what this cohort computed last, and beside the others."""
        if self.stream is not None:
            torch.cuda.set_stream(self.stream)

    def steps(self, told: Callable[[], None]) -> Generator[None, None, bool]:
        """All steps that are left, each of which gives way while its simulators work; `told` is
        called after each. Ends with False where a stop was asked for."""
        started = time.monotonic()
        try:
            if not self.measured:
                self._measure()
                self._end_as_asked()
            while self.learner.step < self.options.steps and Status.RUNNING in self.status:
                self._send()
                yield
                self._receive()
                step = self.learner.step
                told()
                is_last = step == self.options.steps
                is_due = not is_last and (
                    self._end_as_asked() or step % self.options.checkpoint_every == 0
                )
                if self.stop.wanted:
                    self._save()
                    raise Stopped
                if is_due:
                    self._save()
                    log_time(self.folder, step, started, self.pool.worked().sum())
            self._finish()
        except Stopped:
            if checkpoint.newest_first(self.folder):  # else they begin again, as after a kill
                for run in self._running():
                    self.folders[run].describe(Status.INTERRUPTED, str(self.stop.reason))
            return False
        log_time(self.folder, self.learner.step, started, self.pool.worked().sum())
        return True

    def _finish(self) -> None:
        self._retire_failed_runs()
        self._save()  # an evaluation takes its time, in which much can happen
        whole = [run for run, status in enumerate(self.status) if status not in BROKEN_OFF]
        self._evaluate(whole)
        self._log_bias(whole)
        self._log_coverage(self._running())
        for run in self._running():
            self._end_run(run, Status.FINISHED, None)
        for run, folder in enumerate(self.folders):
            folder.describe(self.status[run], self.details[run], ended=True)
        self.complete = True
        self._save()

    # --- one lockstep step

    def _send(self) -> None:
        actions = self.learner.act()
        if not np.isfinite(actions).all():
            self._retire_failed_runs(actions)
            actions = np.nan_to_num(actions, posinf=0, neginf=0)
        self.pool.send(actions)
        # while the simulators step, from every transition but the one under way
        self.learner.learn()

    def _receive(self) -> None:
        learner, seen = self.learner, self.pool.receive()
        learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
        self.so_far += seen.reward
        self.length += 1
        ended, due = seen.terminated | seen.truncated, self._due()
        time_to_log = learner.step % self.options.log_every == 0
        if self.pool.replay_mismatches:
            self._note_replay_mismatches()
        failed = any(self.status[run] == Status.RUNNING for run in self.pool.failures)
        if failed or ended.any() or time_to_log or due:
            self._retire_failed_runs()
            self._end_episodes(ended)
        if time_to_log:
            self._log_metrics()
        if due:
            self._measure()

    def _note_replay_mismatches(self) -> None:
        """Write down which runs do not go on exactly as they would have."""
        for run in self.pool.replay_mismatches:
            self.folders[run].replay_mismatch.append(self.learner.step)
            self.folders[run].describe(self.status[run], self.details[run])
        self.pool.replay_mismatches.clear()

    def _measure(self) -> None:
        """All that is due at this step. What a stop breaks off is dropped, and the resume begins
        with it."""
        before = [folder.marks() for folder in self.folders]
        try:
            for measure in self._due():
                measure(self._running())
        except Stopped:
            self.measured = False
            self._save(before)
            raise
        self.measured = True

    def _due(self) -> list[Callable[[Sequence[int]], None]]:
        """On a schedule, up to the end, where all that is measured is measured once more."""
        step, how = self.learner.step, self.options
        schedule = {self._evaluate: how.evaluate_every, self._log_bias: how.bias_every}
        schedule |= {self._log_coverage: how.coverage_every}
        return [
            measure
            for measure, every in schedule.items()
            if every and step % every == 0 and step < how.steps
        ]

    def _retire_failed_runs(self, actions: NDArray[np.float32] | None = None) -> None:
        """Stop runs that diverged or whose simulator failed; what they did since is not logged."""
        steps = self.learner.state["diverged_step"].tolist()
        for run in self._running():
            if steps[run] >= 0:  # first: a simulator may have failed because of it
                name = self.agent.trained()[int(self.learner.state["diverged_net"][run])]
                self._end_run(
                    run, Status.DIVERGED, f"non-finite {name} gradient at step {steps[run]}"
                )
            elif actions is not None and not np.isfinite(actions[run]).all():
                self._end_run(
                    run, Status.DIVERGED, f"non-finite action at step {self.learner.step}"
                )
            elif run in self.pool.failures:
                self._end_run(run, Status.FAILED, self.pool.failures[run])

    def _end_episodes(self, ended: NDArray[np.bool_]) -> None:
        if not ended.any():
            return
        step, r_limit = (
            self.learner.step,
            self.task.r_limit if self.options.stop_when_solved else None,
        )
        for run in [run for run in self._running() if ended[run]]:
            row = {
                "episode": len(self.returns[run]),
                "step": step,
                "return": float(self.so_far[run]),
            }
            self._log(run, "episodes", row | {"length": int(self.length[run])})
            self.returns[run].append(float(self.so_far[run]))
            if r_limit is not None and solved_at(self.returns[run], r_limit) is not None:
                self._log_coverage([run])  # what is stored from here on is of nobody
                self._end_run(run, Status.FINISHED, f"solved at step {step}")
        self.so_far[ended] = 0
        self.length[ended] = 0
        self.agent.end_of_episode(
            self.learner.state, torch.from_numpy(ended.copy()).to(self.learner.device)
        )

    def _end_run(self, run: int, status: Status, detail: str | None) -> None:
        self.status[run], self.details[run] = status, detail
        if detail is not None:  # a run that only ran out of steps may be extended
            self.learner.freeze(run)
            self.pool.park(run)
        self.folders[run].describe(status, detail)
        self.watcher.on_status(self.runs[run], status, detail)

    def _end_as_asked(self) -> bool:
        """End the runs that a callback wants to end. Where there are any, that is worth a
        checkpoint: whether the same callback watches a resume shall make no difference."""
        ending = {
            run: self.asked_to_end[run] for run in self._running() if run in self.asked_to_end
        }
        for run, reason in ending.items():
            self._log_coverage([run])
            self._end_run(run, Status.STOPPED, f"{reason}, at step {self.learner.step}")
        self.asked_to_end.clear()
        return bool(ending)

    def _running(self) -> list[int]:
        return [run for run, status in enumerate(self.status) if status == Status.RUNNING]

    # --- what is measured and written

    def _log(self, run: int, kind: str, row: dict[str, Any]) -> None:
        self.folders[run].log(kind, row)
        if reason := self.watcher.on_log(self.runs[run], kind, row):
            self.asked_to_end[run] = reason

    def _log_metrics(self) -> None:
        values = self.learner.read_metrics()
        for run in self._running():
            if not np.isnan(values[:, run]).all():
                row = dict(zip(self.agent.metric_names, values[:, run].tolist(), strict=True))
                self._log(run, "metrics", {"step": self.learner.step, **row})

    def _evaluate(self, runs: Sequence[int]) -> None:
        """Evaluate the deterministic policy and, for runs that shoot, the shooting one, which then
        decides which agent is best."""
        if not runs or not self.options.evaluation_episodes:
            return
        shots = self.agent.shots(evaluating=True)
        means: dict[int, float] = {}
        for policy in policies_of(self.agent):
            played = Episodes(
                self.agent,
                self.learner.state,
                self.task,
                self.seeds,
                self.options.evaluation_episodes,
                str(self.learner.step),
                workers=self.pool.workers,
                only=runs,
                stop=self.stop,
                step_seconds=self.options.step_seconds,
            )
            returns = evaluate(played, policy)
            for run in runs:
                if policy == "deterministic" or shots[run] > 1:
                    means[run] = returns[run].mean().item()
                    self._log_evaluation(run, policy, returns[run], played)
        if self.options.evaluate_every:
            for run, mean in means.items():
                self._keep_best(run, mean)

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
        best = self.best[run]
        if not np.isnan(mean) and (best is None or mean > best):
            self.best[run] = mean
            self._save_agent(run, "best.safetensors")

    def _log_bias(self, runs: Sequence[int]) -> None:
        if not runs or not self.options.bias_every:
            return
        step = self.learner.step
        errors = measure_value_errors(
            self.agent,
            self.learner.state,
            self.task,
            self.seeds,
            self.options.bias_episodes,
            str(step),
            only=runs,
            workers=self.pool.workers,
            stop=self.stop,
            step_seconds=self.options.step_seconds,
        )
        for run in runs:
            if row := errors[run].row():
                self._log(run, "bias", {"step": step} | row)

    def _log_coverage(self, runs: Sequence[int]) -> None:
        if not runs or not self.options.coverage_every:
            return
        for run, coverage in enumerate(measure_coverage(self.learner)):
            if run in runs:
                self._log(run, "coverage", {"step": self.learner.step, **coverage._asdict()})

    def _save_agent(self, run: int, name: str = "agent.safetensors") -> None:
        save_agent(
            self.folders[run].path / name, self.runs[run], self.agent, self.learner.state, run
        )

    def _save(self, marks: list[dict[str, Mark]] | None = None) -> None:
        """With the logs as they are, or to be cut back to marks."""
        for run in range(len(self.runs)):
            self._save_agent(run)
        progress = {
            "placement": self.placement,
            "complete": self.complete,
            "measured": self.measured,
        }
        progress |= {name: getattr(self, name) for name in SAVED}
        progress["replay_mismatch"] = [folder.replay_mismatch for folder in self.folders]
        progress["logs"] = marks or [folder.marks() for folder in self.folders]
        content = checkpoint.Checkpoint(self.learner.export(), self.pool.snapshot(), progress)
        checkpoint.save(self.folder, self.fingerprint, self.learner.step, content)
