"""Watching training: a callback has any of five methods, each called by the loop in its process."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.training.run import Run


class Callback:
    """Override what you need. A callback may end a run; nothing else that it does changes training,
    apart from the time it takes."""

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        """A cohort starts, or goes on, at `step` of `steps`."""

    def on_step(self, step: int) -> None:
        """A lockstep step is done."""

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> str | None:
        """A line was written to a run's log `kind`: episodes, metrics, evaluations, bias or
        coverage. To end this run after the present step return the reason in a few words: its
        status is then `stopped`; its cohort goes on."""

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        """A run finished, diverged, failed or was stopped by a callback."""

    def on_end(self, folder: Path) -> None:
        """The cohort is done or interrupted."""


Watchers = Callback | Iterable[Callback]


class Callbacks(Callback):
    """Several as one: whatever is called of it is called of each of them."""

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
        answers = [getattr(member, event)(*arguments) for member in self.members]
        return next((answer for answer in answers if answer and isinstance(answer, str)), None)
