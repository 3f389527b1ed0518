"""Callbacks, whose methods the training loop calls in its process."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.training.run import Run


class Callback:
    """Observe training; override the methods that you need.

    A callback can end a run, and has no other effect on results.

    Example:
        >>> class Patience(pac4sac.Callback):
        ...     def on_log(self, run, kind, row):
        ...         if kind == "episodes" and row["return"] < -1500:
        ...             return "a return below -1500"
        >>> result = pac4sac.train("Pendulum-v1", "sac", steps=5_000, callbacks=Patience())
    """

    def on_prepare(self) -> None:
        """Handle the start of preparation, after all arguments were checked and before any
        training."""

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        """Handle the start of a cohort, or its resume.

        Args:
            folder: Experiment folder.
            runs: Runs of the cohort.
            steps: Environment steps of each run.
            step: Step at which training starts; above 0 after a resume.
        """

    def on_step(self, step: int) -> None:
        """Handle the end of a lockstep step.

        Args:
            step: Number of steps of each run so far.
        """

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> str | None:
        """Handle a new line in a log of a run.

        Args:
            run: The run.
            kind: Name of the log: episodes, metrics, evaluations, bias or coverage.
            row: The line, with the columns that `docs/metrics.md` explains.

        Returns:
            None to continue. A string, used as the reason, ends this run after the current step
            with the status `stopped`; its cohort continues.
        """

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        """Handle the end of a run.

        Args:
            run: The run.
            status: finished, diverged, failed or stopped.
            detail: Reason, if there is one.
        """

    def on_end(self, folder: Path) -> None:
        """Handle the end or the interruption of a cohort.

        Args:
            folder: Experiment folder.
        """


Watchers = Callback | Iterable[Callback]


class Callbacks(Callback):
    """Forward each call to several callbacks."""

    def __init__(self, members: Watchers) -> None:
        self.members = tuple(members) if isinstance(members, Iterable) else (members,)
        for member in self.members:
            if not isinstance(member, Callback):
                raise UserError(
                    "callbacks must be instances of subclasses of pac4sac.Callback; "
                    f"{member!r} is not."
                )
        for event in [name for name in vars(Callback) if name.startswith("on_")]:
            setattr(self, event, functools.partial(self._call_each, event))

    def _call_each(self, event: str, *arguments: Any) -> str | None:
        """Call a method of all callbacks, and return the first reason among their results."""
        answers = [getattr(member, event)(*arguments) for member in self.members]
        return next((answer for answer in answers if answer and isinstance(answer, str)), None)
