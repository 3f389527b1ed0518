"""Export of learning curves as a CSV file in a schema that several projects share."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import write_whole
from pac4sac.report.report import read_context
from pac4sac.report.variants import Variant
from pac4sac.runs.curve_files import EVALUATION, is_curve_file, to_csv
from pac4sac.runs.metrics import evaluation_curve
from pac4sac.runs.reading import RunRecord, warn_of_damage

EPISODE, SHOOTING = "episode_return", f"{EVALUATION}_shooting"


def export_curves(folders: Sequence[Path], out: Path) -> str:
    """Write the evaluations and episode returns of all runs below some folders to a CSV file.

    Variants and tasks have the unique names of a report.

    Args:
        folders: Experiment, study or run folders, or archives.
        out: CSV file to write.

    Returns:
        A sentence with the numbers of runs and rows.

    Raises:
        UserError: If the runs have no episode or evaluation, or `out` is a folder.

    Example:
        >>> from pathlib import Path
        >>> from pac4sac.export.curves import export_curves
        >>> export_curves([Path("experiments/sac")], Path("curves.csv"))  # doctest: +SKIP
    """
    out = Path(out)
    if out.is_dir() or not is_curve_file(out):
        raise UserError(
            f"{out} is not the name of a CSV file; give one, such as {out / 'curves.csv'}."
        )
    variants = [variant for variant in read_context(folders).all_variants if not variant.is_foreign]
    runs = [run for variant in variants for run in variant.runs]
    warn_of_damage(runs)
    rows = [*itertools.chain(*map(_rows, variants))]
    if not rows:
        raise UserError(
            f"No run in {', '.join(map(str, folders))} has an episode or an evaluation."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, to_csv(rows))
    return f"The curves of {len(runs)} runs were written to {out}, in {len(rows)} rows."


def _rows(variant: Variant) -> Iterator[Sequence[Any]]:
    """Yield the rows of all runs of a variant."""
    for run in variant.runs:
        for metric, step, value in _points(run):
            yield variant.label, variant.task.title, run.seed, metric, step, value


def _points(run: RunRecord) -> Iterator[tuple[str, int, float]]:
    """Yield metric, step and value of all evaluations and episodes of a run."""
    for metric, policy in ((EVALUATION, "deterministic"), (SHOOTING, "shooting")):
        for step, mean in evaluation_curve(run, policy).items():
            yield metric, step, mean
    for row in run.episodes:
        yield EPISODE, row["step"], row["return"]
