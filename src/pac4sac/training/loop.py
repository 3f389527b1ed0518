"""The training loop of a cohort: act, send, update while the simulators step, receive, store, log,
save a checkpoint."""

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
from pac4sac.training.callbacks import Callback
from pac4sac.training.cohort_logs import CohortLogs
from pac4sac.training.options import Options
from pac4sac.training.progress import Progress, check_stored, extended_runs
from pac4sac.training.run import Run, check_code, make_agent
from pac4sac.training.run_folder import (
    LeftFolder,
    Mark,
    RunFolder,
    attempts,
    check_that_nothing_was_saved,
    log_time,
)
from pac4sac.training.warm_start import start_from

PLACEMENT = ("device", "backend", "precision", "threads")  # options of the computation


class Cohort:
    """Train runs in lockstep, from the first step or the last checkpoint to the end."""

    def __init__(
        self,
        root: Path,
        name: str,
        runs: Sequence[Run],
        options: Options,
        watcher: Callback,
        attempt: int = 0,
    ) -> None:
        """Prepare a cohort of an experiment.

        Args:
            root: Experiment folder.
            name: Name of the cohort's folder in cohorts/.
            runs: Runs of the cohort.
            options: Training options.
            watcher: Callback that is informed during training.
            attempt: Number of the attempt, for a failed run that is trained again; otherwise 0.
        """
        self.root, self.folder = root, root / "cohorts" / name
        self.runs, self.options, self.watcher = tuple(runs), options, watcher
        self.task, self.seeds = runs[0].task, [run.seed for run in runs]
        self.fingerprint = checkpoint.fingerprint([run.describe() for run in runs])
        self.attempt = attempt
        # runs that failed here and that a later attempt retrains
        self.left = {index for index, run in enumerate(runs) if attempts(root, run.id) > attempt}
        self.folders = [
            LeftFolder(root, run) if index in self.left else RunFolder(root, run)
            for index, run in enumerate(runs)
        ]
        self.progress = Progress.at_start(len(runs))

    # --- start and end

    def is_done(self) -> bool:
        """Load the newest checkpoint, and return whether all training is done."""
        self.saved = checkpoint.load_newest(self.folder, self.fingerprint, self._check)
        if self.saved is None and not self._begins_attempt():
            check_that_nothing_was_saved(self.folders, self.options.checkpoint_every)
        if self.saved is None:
            return False
        stored = self.saved.progress
        return bool(stored["complete"]) and not extended_runs(stored, self._steps_left(self.saved))

    def _begins_attempt(self) -> bool:
        """Return whether a run that failed before its first checkpoint starts again."""
        return self.attempt > 0 and self.folders[0].status() == Status.FAILED

    def accept_code(self, keep_stale: bool) -> None:
        """Refuse runs trained by another version of the code, or continue them with the current
        code.

        Args:
            keep_stale: Whether to continue them and record both versions.
        """
        if not keep_stale:
            check_code(self.runs)
            return
        step = int(self.saved.learner["step"]) if self.saved else 0
        self.runs = tuple(run.continued(step) if run.edited() else run for run in self.runs)
        for folder, run in zip(self.folders, self.runs, strict=True):
            folder.run = run

    def prepare(self, pool: EnvPool, stop: StopRequest) -> bool:
        """Prepare the first step, or the step after the checkpoint that `is_done` loaded.

        Returns:
            False if a stop was requested before the preparation ended.
        """
        self.pool, self.stop, saved = pool, stop, self.saved
        self.agent = make_agent(self.runs, pool.observation_size, pool.action_size)
        if stop.reason is not None:  # before the slow compilation
            return False
        self._make_learner(saved.progress["placement"] if saved else None)
        try:
            logs = self._resume(saved) if saved else self._begin()
        except Stopped:  # a simulator did not answer
            return False
        self.saved = None  # frees the memory of its replay buffer
        self.logs = CohortLogs(
            self.runs,
            self.folders,
            self.options,
            self.watcher,
            self.agent,
            self.learner,
            self.progress,
            pool.workers,
            stop,
        )
        for run, folder in enumerate(self.folders):
            # first, because checksums in run.json must not include lines that are cut
            folder.describe(self.progress.status[run], self.progress.details[run])
            folder.cut_back(logs[run])
        return True

    def _check(self, saved: checkpoint.Checkpoint) -> None:
        """Refuse a checkpoint that does not fit its logs, or whose progress has another format."""
        stored = saved.progress
        try:
            check_stored(stored, len(self.runs))
            int(saved.learner["step"])
            int(stored["placement"]["threads"])
            for folder, marks in zip(self.folders, stored["logs"], strict=True):
                folder.check(marks)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedCheckpoint(
                f"its progress is unreadable ({type(error).__name__})"
            ) from error

    def _steps_left(self, saved: checkpoint.Checkpoint) -> bool:
        """Return whether the step budget exceeds the steps of a checkpoint."""
        return int(saved.learner["step"]) < self.options.steps

    def _make_learner(self, saved: dict[str, Any] | None) -> None:
        """Make the learner on its device and backend.

        Args:
            saved: Placement of the checkpoint, which a resume must keep; None to choose it from the
                options.
        """
        how = saved or {name: getattr(self.options, name) for name in PLACEMENT}
        device = backends.pick_device(how["device"])
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.take_turn()
        self.learner, self.placement = backends.make_learner(
            self.agent, self.seeds, self.options.steps, how
        )
        if saved and self.placement["backend"] != saved["backend"]:
            raise UserError(
                f"This experiment was started with the {saved['backend']} backend, which does "
                "not work here; resume it on a machine that supports it."
            )
        computed = {name: self.placement[name] for name in ("device", "backend", "precision")}
        for folder in self.folders:
            folder.computed = computed | {"device": device.type}

    def _begin(self) -> Sequence[dict[str, Mark]]:
        """Start the first episodes; return the marks of the empty logs."""
        if self.options.start_from:
            start_from(
                self.options.start_from, self.agent, self.learner.state, self.runs[0].started_from
            )
        self.learner.begin(self.pool.reset())
        return [{}] * len(self.runs)

    def _resume(self, saved: checkpoint.Checkpoint) -> Sequence[dict[str, Mark]]:
        """Restore a checkpoint; return the marks of the logs at its step."""
        stored = saved.progress
        try:
            self.learner.restore(saved.learner)
            self.progress = Progress.from_stored(stored, self._steps_left(saved))
            # named "strayed" or missing in older checkpoints
            mismatches = stored.get("replay_mismatch") or stored.get("strayed")
            if mismatches:
                for folder, steps in zip(self.folders, mismatches, strict=True):
                    folder.replay_mismatch = list(steps)
            self.learner.begin(self.pool.restore(saved.pool))
            self._note_replay_mismatches()
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"The checkpoint in {self.folder} does not match its runs ({error}); train again "
                "into another folder."
            ) from error
        return list(stored["logs"])

    def take_turn(self) -> None:
        """Run the following GPU kernels on the stream of this cohort."""
        if self.stream is not None:
            torch.cuda.set_stream(self.stream)

    def steps(self, report: Callable[[], None]) -> Generator[None, None, bool]:
        """Take all remaining steps; yield in each step while its simulators work.

        Args:
            report: Function that is called after each step.

        Returns:
            False if a stop was requested.
        """
        started = time.monotonic()
        try:
            if not self.progress.measured:
                self._measure()
                self._end_requested_runs()
            while self.learner.step < self.options.steps and self.progress.has_running():
                self._send()
                yield
                self._receive()
                report()
                self._save_if_due(started)
            self._finish()
        except Stopped:
            self._note_interruption()
            return False
        self._log_time(started)
        return True

    def _save_if_due(self, started: float) -> None:
        """Save a checkpoint on schedule, or if a callback ended a run, or before a stop."""
        step = self.learner.step
        is_last = step == self.options.steps  # `_finish` saves it
        is_due = not is_last and (
            self._end_requested_runs() or step % self.options.checkpoint_every == 0
        )
        if self.stop.wanted:
            self._save()
            raise Stopped
        if is_due:
            self._save()
            self._log_time(started)

    def _note_interruption(self) -> None:
        """Mark the runs as interrupted, if there is a checkpoint from which they can continue.

        Without a checkpoint, they start again, as after a kill.
        """
        if checkpoint.newest_first(self.folder):
            for run in self.progress.running():
                self.folders[run].describe(Status.INTERRUPTED, str(self.stop.reason))

    def _log_time(self, started: float) -> None:
        log_time(self.folder, self.learner.step, started, self.pool.worked().sum())

    def _finish(self) -> None:
        """Measure all runs that neither failed nor diverged, end them, and save the last
        checkpoint."""
        self._retire_failed_runs()
        self._save()  # the evaluation is slow and may be interrupted
        status = self.progress.status
        whole = [run for run in range(len(self.runs)) if status[run] not in BROKEN_OFF]
        self.logs.evaluate(whole)
        self.logs.bias(whole)
        self.logs.coverage(self.progress.running())
        for run in self.progress.running():
            self._end_run(run, Status.FINISHED, None)
        for run, folder in enumerate(self.folders):
            folder.describe(status[run], self.progress.details[run], ended=True)
        self.progress.complete = True
        self._save()

    # --- one lockstep step

    def _send(self) -> None:
        """Send the next actions, and learn while the simulators step."""
        actions = self.learner.act()
        if not np.isfinite(actions).all():
            self._retire_failed_runs(actions)
            actions = np.nan_to_num(actions, posinf=0, neginf=0)
        self.pool.send(actions)
        self.learner.learn()  # from all transitions except the one in simulation

    def _receive(self) -> None:
        """Store the transitions of the step, log ended episodes, and make the scheduled
        measurements."""
        learner, seen = self.learner, self.pool.receive()
        learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
        self.progress.so_far += seen.reward
        self.progress.length += 1
        ended, due = seen.terminated | seen.truncated, self._due()
        metrics_are_due = learner.step % self.options.log_every == 0
        if self.pool.replay_mismatches:
            self._note_replay_mismatches()
        if ended.any() or metrics_are_due or due or self._has_new_failure():
            self._retire_failed_runs()
            self._end_episodes(ended)
        if metrics_are_due:
            self.logs.metrics()
        if due:
            self._measure()

    def _has_new_failure(self) -> bool:
        status = self.progress.status
        return any(status[run] == Status.RUNNING for run in self.pool.failures)

    def _note_replay_mismatches(self) -> None:
        """Record the runs whose replay gave another observation."""
        for run in self.pool.replay_mismatches:
            self.folders[run].replay_mismatch.append(self.learner.step)
            self.folders[run].describe(self.progress.status[run], self.progress.details[run])
        self.pool.replay_mismatches.clear()

    def _measure(self) -> None:
        """Make all scheduled measurements of this step.

        If a stop interrupts the measurements, their lines are dropped, and a resume repeats them.
        """
        before = [folder.marks() for folder in self.folders]
        try:
            for measure in self._due():
                measure(self.progress.running())
        except Stopped:
            self.progress.measured = False
            self._save(before)
            raise
        self.progress.measured = True

    def _due(self) -> list[Callable[[Sequence[int]], None]]:
        """Return the measurements scheduled for this step.

        The last step has none, because `_finish` makes all of them.
        """
        step, how = self.learner.step, self.options
        schedule = (
            (self.logs.evaluate, how.evaluate_every),
            (self.logs.bias, how.bias_every),
            (self.logs.coverage, how.coverage_every),
        )
        return [
            measure
            for measure, every in schedule
            if every and step % every == 0 and step < how.steps
        ]

    def _retire_failed_runs(self, actions: NDArray[np.float32] | None = None) -> None:
        """End runs that diverged or whose simulator failed, without logging their last steps.

        Args:
            actions: The next actions [R, da], if some of them are not finite.
        """
        steps = self.learner.state["diverged_step"].tolist()  # one transfer from the device
        for run in self.progress.running():
            # first, because a diverged run can make its simulator fail
            if divergence := self._divergence(run, steps[run], actions):
                self._end_run(run, Status.DIVERGED, divergence)
            elif run in self.pool.failures:
                self._end_run(run, Status.FAILED, self.pool.failures[run])

    def _divergence(self, run: int, step: int, actions: NDArray[np.float32] | None) -> str | None:
        """Describe how a run diverged; None if it did not.

        Args:
            run: The run.
            step: Step of its first non-finite gradient; negative if there was none.
            actions: The next actions of all runs, if some of them are not finite.
        """
        if step >= 0:
            name = self.agent.trained()[int(self.learner.state["diverged_net"][run])]
            return f"non-finite {name} gradient at step {step}"
        if actions is not None and not np.isfinite(actions[run]).all():
            return f"non-finite action at step {self.learner.step}"
        return None

    def _end_episodes(self, ended: NDArray[np.bool_]) -> None:
        """Log the ended episodes, and end the runs that they solve."""
        if not ended.any():
            return
        for run in self.progress.running():
            if ended[run]:
                self.logs.episode(run)
                self._end_if_solved(run)
        self.progress.so_far[ended] = 0
        self.progress.length[ended] = 0
        self.agent.end_of_episode(
            self.learner.state, torch.from_numpy(ended.copy()).to(self.learner.device)
        )

    def _end_if_solved(self, run: int) -> None:
        """End a run that has solved its task, if `stop_when_solved` is set."""
        r_limit = self.task.r_limit
        if not self.options.stop_when_solved or r_limit is None:
            return
        if solved_at(self.progress.returns[run], r_limit) is not None:
            self.logs.coverage([run])  # later rows of its replay buffer do not belong to it
            self._end_run(run, Status.FINISHED, f"solved at step {self.learner.step}")

    def _end_run(self, run: int, status: Status, detail: str | None) -> None:
        """Set the final status of a run; a run without a detail can be extended later."""
        self.progress.status[run], self.progress.details[run] = status, detail
        if detail is not None:
            self.learner.freeze(run)
            self.pool.park(run)
        if status == Status.FAILED:
            checkpoint.keep_newest(self.folder)  # a retry starts there
        self.folders[run].describe(status, detail)
        self.watcher.on_status(self.runs[run], status, detail)

    def _end_requested_runs(self) -> bool:
        """End the runs that callbacks want to end, and return whether there are any.

        A checkpoint is saved afterwards, so a resume does not need the callback.
        """
        ending = {
            run: self.logs.requested_ends[run]
            for run in self.progress.running()
            if run in self.logs.requested_ends
        }
        for run, reason in ending.items():
            self.logs.coverage([run])
            self._end_run(run, Status.STOPPED, f"{reason}, at step {self.learner.step}")
        self.logs.requested_ends.clear()
        return bool(ending)

    # --- checkpoints

    def _save(self, marks: list[dict[str, Mark]] | None = None) -> None:
        """Save the agents and a checkpoint.

        Args:
            marks: Marks to which a resume cuts the logs back; None for the current ends.
        """
        for run in set(range(len(self.runs))) - self.left:
            self.logs.save_agent(run)
        about = {
            "placement": self.placement,
            **self.progress.describe(),
            "replay_mismatch": [folder.replay_mismatch for folder in self.folders],
            "logs": marks or [folder.marks() for folder in self.folders],
        }
        content = checkpoint.Checkpoint(self.learner.export(), self.pool.snapshot(), about)
        checkpoint.save(self.folder, self.fingerprint, self.learner.step, content)
