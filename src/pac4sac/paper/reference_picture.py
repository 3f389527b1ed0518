"""A run drawn over the archived runs of its task."""

from pathlib import Path

import numpy as np

from pac4sac.paper.numbers import ALGORITHMS, TASKS
from pac4sac.paper.reference import reference_runs
from pac4sac.report.figures import (
    DASHED,
    FAINT,
    INK,
    add_legend,
    count_seeds,
    draw_mean,
    finish_panel,
    mean_curve,
    new_figure,
    styles,
)
from pac4sac.runs.reading import RunRecord

RIVALS = ("sac", "pac4sac")


def draw_over_reference(path: Path, run: RunRecord, label: str) -> None:
    """On a task of the paper; the suffix of `path` chooses the format."""
    task, horizon, r_limit = (run.task[name] for name in ("name", "horizon", "r_limit"))
    archived, looks = reference_runs(task), styles(RIVALS)
    figure, (panel,) = new_figure(1, 7.6, 4.6)
    for algo in RIVALS:
        runs = archived[task, algo]
        if (curve := mean_curve(runs)) is None:
            continue
        steps, mean, half = curve
        # An interval of the mean may reach beyond the best that any episode can give.
        least, most = (float(end([end(run.returns) for run in runs])) for end in (np.min, np.max))
        low, high = np.clip(mean - half, least, most), np.clip(mean + half, least, most)
        colour, line = looks[algo]
        panel.fill_between(steps / horizon, low, high, color=colour, alpha=0.18, linewidth=0)
        name = f"{ALGORITHMS[algo]}, archived: mean of {count_seeds(len(runs))}, 95 % interval"
        draw_mean(panel, (steps / horizon, mean, np.full(len(mean), np.nan)), name, colour, line)
    look = {"color": INK, "linewidth": 1.4, "marker": "o", "markersize": 4.5, "zorder": 5}
    panel.plot(run.steps / horizon, run.returns, **look, label=label)
    panel.axhline(r_limit, **DASHED)
    where = {"xy": (0, r_limit), "xycoords": ("axes fraction", "data"), "xytext": (4, 5)}
    panel.annotate(
        f"solved: five in a row above {r_limit:g}", **where, **{"textcoords": "offset points", "color": FAINT}
    )
    panel.set_title(
        f"{TASKS[task]}: this run over archived ones", loc="left", color=INK, fontsize=12, fontweight="bold"
    )
    finish_panel(panel, "training episode", "return of the episode")
    add_legend(figure, panel, columns=1)
    figure.savefig(path, dpi=150)
