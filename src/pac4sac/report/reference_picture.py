"""A figure of a run in front of the archived runs of its task."""

from pathlib import Path

from pac4sac.report.figures import (
    DASHED,
    INK,
    add_legend,
    count_seeds,
    draw_mean,
    drawn,
    finish_panel,
    new_figure,
)
from pac4sac.report.learning_curves import mean_curve
from pac4sac.report.style import KNOWN
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.reference import reference_runs

BASELINES = ("sac", "pac4sac")


def draw_over_reference(path: Path, run: RunRecord, label: str) -> None:
    """Draw a run in front of archived runs of its task; the suffix of `path` selects the format."""
    task, horizon, r_limit = (run.task[name] for name in ("name", "horizon", "r_limit"))
    archived = reference_runs(task)
    figure, (panel,) = new_figure(f"{task}: this run compared with archived runs", 1, height=4.4)
    for algo in BASELINES:
        runs, style = archived[task, algo], KNOWN[algo]
        if curve := mean_curve(runs):
            steps, *band = curve
            name = f"{style.name}, archived: mean of {count_seeds(len(runs))}, 95% CI"
            draw_mean(panel, (steps / horizon, *band), name, style)
    line = {"color": INK, "linewidth": 1.2, "marker": "o", "markersize": 3.5, "zorder": 5}
    panel.plot(run.steps / horizon, run.returns, **line, label=drawn(label))
    threshold = f"return threshold: solved if five episodes in a row are above {r_limit:g}"
    panel.axhline(r_limit, **DASHED, label=threshold)
    finish_panel(panel, "training episode", "return of the episode")
    add_legend(figure, panel)
    figure.savefig(path, dpi=200)
