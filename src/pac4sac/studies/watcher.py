"""Being told how a study gets on."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort


class Watcher:
    """Says nothing and passes warnings on; override what you want to know."""

    def planned(
        self, study: "Study", root: Path, cohorts: Sequence["PlannedCohort"], memory: int
    ) -> None:
        """These cohorts, each within `memory` bytes, make up the study in the folder `root`."""

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None: ...

    def warning(self, cohort: "PlannedCohort", sentence: str) -> None:
        warnings.warn(f"{cohort.title}: {sentence}", stacklevel=2)

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        """It is complete, stopped, or for a reason failed."""
