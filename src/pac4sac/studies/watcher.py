"""Hooks for the progress of a study."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort


class Watcher:
    """Receive the progress of a study. Override the methods that you need; by default, only
    warnings are forwarded."""

    def planned(
        self, study: "Study", root: Path, cohorts: Sequence["PlannedCohort"], memory: int
    ) -> None:
        """Handle the plan of a study in the folder `root`; a cohort uses up to `memory` bytes."""

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        """Handle the current step of a cohort."""

    def warning(self, cohort: "PlannedCohort", sentence: str) -> None:
        """Handle a warning from the training of a cohort."""
        warnings.warn(f"{cohort.title}: {sentence}", stacklevel=2)

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        """Handle the end of a cohort: complete, stopped, or failed for a reason."""
