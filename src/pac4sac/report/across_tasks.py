"""The section on all tasks together: regret as a fraction of r_limit × E_max."""

from collections.abc import Iterable, Sequence
from functools import partial

from pac4sac.base.grouping import group_by
from pac4sac.report import figures, rankings
from pac4sac.report.comparison import Context
from pac4sac.report.learning_curves import overview_figure
from pac4sac.report.provenance import mixtures
from pac4sac.report.sentences import listed
from pac4sac.report.tables import TEXTS, Cell, Column, Picture, Section, Table, words
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, interquartile_mean, probability_of_improvement

NAME, UNIT = "across-tasks", "regret / (r_limit × E_max)"


class AcrossTasks:
    """Hold the variants with results on all tasks that compare at least two variants."""

    def __init__(self, context: Context, titles: Iterable[str]) -> None:
        self.context = context
        self.tasks = [title for title in titles if _is_compared(context.results(title))]
        results = [variant for title in self.tasks for variant in context.results(title)]
        by_label = group_by(results, key=lambda variant: variant.label)
        self.variants = {
            label: members for label, members in by_label.items() if self._is_everywhere(members)
        }
        # label -> one list of normalised regrets per task
        self.scores = {
            label: [normalised_regrets(variant) for variant in members]
            for label, members in self.variants.items()
        }

    def _is_everywhere(self, members: Sequence[Variant]) -> bool:
        """Return whether variants of one label have results on all tasks."""
        return len(members) == len(self.tasks) and all(map(normalised_regrets, members))

    @property
    def baseline(self) -> str:
        named = [self.context.baselines[title] for title in self.tasks]
        known = [variant.label for variant in named if variant and variant.label in self.variants]
        return next(iter([*known, *self.variants]))

    def means(self) -> dict[str, Estimate]:
        return {label: interquartile_mean(scores) for label, scores in self.scores.items()}

    def improvements(self) -> dict[str, Estimate]:
        """Return P(better than the baseline) of each variant."""
        theirs = self.scores[self.baseline]
        return {
            label: probability_of_improvement(scores, theirs, lower_is_better=True)
            for label, scores in self.scores.items()
            if label != self.baseline
        }

    def table(self) -> Table:
        columns = [
            words("Variant", str),
            Column("Runs", self._runs_cell),
            Column("IQM of normalised regret [95%]", self.means().__getitem__, digits=3),
            Column(f"P(better than {self.baseline}) [95%]", self.improvements().get, digits=2),
        ]
        return Table(NAME, TEXTS["across_tasks"]["caption"], columns, list(self.variants))

    def _runs_cell(self, label: str) -> Cell:
        runs = sum(map(len, self.scores[label]))
        diverged = sum(variant.count("diverged") for variant in self.variants[label])
        return Cell(str(runs), runs, note=f"without {diverged} diverged" if diverged else "")

    def overview(self) -> Picture:
        """Return learning curves of the baseline and its companions, one panel per task."""
        drawn: dict[str, list[Variant]] = {}
        for title in self.tasks:
            both = self.context.companions.get(title), self.context.baselines[title]
            if members := list(dict.fromkeys(filter(None, both))):
                drawn[title] = members
        caption = TEXTS["across_tasks"]["overview"]
        return Picture("overview", caption, partial(overview_figure, drawn))

    def pictures(self) -> list[Picture]:
        """Return the ranking and the performance profiles of the first few variants."""
        count, styles, baseline = len(self.tasks), self.context.styles, self.baseline
        ranked = rankings.best_first(self.means(), lower_is_better=True)
        first = [baseline, *(label for label in ranked if label != baseline)][: figures.AT_ONCE]
        ranking = partial(
            rankings.ranking_figure,
            f"Interquartile means over {count} tasks",
            ranked,
            styles,
            baseline,
            UNIT,
            1.0,
        )
        profiles = partial(
            rankings.profile_figure,
            f"Performance profiles over {count} tasks",
            {label: self.scores[label] for label in first},
            styles,
            baseline,
            UNIT,
            lower_is_better=True,
        )
        return [
            Picture(NAME, TEXTS["across_tasks"]["caption"], ranking),
            Picture(f"profile-{NAME}", TEXTS["profile"]["caption"], profiles),
        ]


def across_tasks_section(across: AcrossTasks) -> tuple[Section, Picture] | None:
    """Return the section and the overview for the first screen; None below two tasks or two
    variants."""
    if len(across.tasks) < 2 or len(across.variants) < 2:
        return None
    compared = [variant for members in across.variants.values() for variant in members]
    by_task = sorted(compared, key=lambda variant: across.tasks.index(variant.task.title))
    blocks = [
        TEXTS["across_tasks"]["intro"].format(tasks=listed(across.tasks)),
        across.table(),
        *mixtures(by_task),
        *across.pictures(),
    ]
    return Section(NAME, "Across tasks", blocks), across.overview()


def _is_compared(variants: Sequence[Variant]) -> bool:
    """Return whether a task has results of two variants; with one, no other label would be on all
    tasks."""
    return sum(bool(normalised_regrets(variant)) for variant in variants) > 1


def normalised_regrets(variant: Variant) -> list[float]:
    """Return the regret of each run divided by the largest possible; empty if regret is not
    defined."""
    most = variant.task.most_regret
    return [value / most for value in variant.values("regret")] if most > 0 else []
