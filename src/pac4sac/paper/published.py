"""Our evaluations beside the returns that others published, after as many steps of the same version
of a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from pac4sac.paper.groups import PUBLISHED, PaperContext
from pac4sac.paper.numbers import PUBLISHED as NUMBERS
from pac4sac.paper.numbers import TEXTS
from pac4sac.paper.rows import has_settings
from pac4sac.paper.verdicts import (
    MARGIN_TEXT,
    NO_DATA,
    Verdict,
    compare_returns,
    tally,
    without_diverged,
)
from pac4sac.report.comparison import UNFINISHED
from pac4sac.report.provenance import mixtures
from pac4sac.report.style import KNOWN
from pac4sac.report.tables import (
    Block,
    Cell,
    Column,
    Section,
    Table,
    command,
    data,
    verdict_cell,
    with_ends,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.metrics import evaluation_at
from pac4sac.runs.statistics import Estimate, Summary, summarise


@dataclass(frozen=True)
class PublishedReturn:
    """A mean return of an algorithm that others published, and our runs with its settings."""

    task: str
    algo: str
    steps: int  # of training, before the evaluation
    published: Summary  # without a deviation where none was given
    variant: Variant | None

    @property
    def name(self) -> str:
        return f"{self.short_name}, {self.steps:,} steps"

    @property
    def short_name(self) -> str:
        return f"{self.task}, {KNOWN[self.algo].name}"

    @cached_property
    def values(self) -> list[float]:
        """Of our runs, as far as they have come to that evaluation."""
        found = (
            (evaluation_at(run, self.steps) for run in self.variant.runs) if self.variant else ()
        )
        return [value for value in found if value is not None]

    @property
    def summary(self) -> Summary | None:
        return summarise(self.values) if self.values else None

    @cached_property
    def judged(self) -> Verdict:
        if self.variant is None:
            return Verdict(NO_DATA, "not trained here")
        # By their status: a run that is solved is complete for other metrics, and may still be
        # training.
        lacking = [
            run.status for run in self.variant.runs if evaluation_at(run, self.steps) is None
        ]
        diverged = lacking.count("diverged")
        if waiting := len(lacking) - diverged - lacking.count("finished"):
            return Verdict(UNFINISHED, f"{waiting} of {len(self.variant.runs)} runs are under way")
        if not self.values:
            return Verdict(NO_DATA, f"no run was evaluated after {self.steps:,} steps")
        return without_diverged(compare_returns(self.values, self.published), diverged)

    @property
    def difference(self) -> Estimate | None:
        judged, mean = self.judged, self.summary.mean if self.summary else None
        return (
            None if mean is None else Estimate(mean - self.published.mean, judged.low, judged.high)
        )

    @property
    def runs(self) -> Cell:
        trained = len(self.variant.outcomes) if self.variant else 0
        return Cell(f"{len(self.values)} of {trained}" if trained else "0", len(self.values))


def beside_published(context: PaperContext) -> list[PublishedReturn]:
    """Every published number; nothing where neither a run nor a study has to do with any."""
    found = [
        PublishedReturn(
            task, algo, int(steps), _summary(*numbers), _variant(context, task, algo, int(steps))
        )
        for task, by_algo in NUMBERS["returns"].items()
        for algo, by_steps in by_algo.items()
        for steps, numbers in by_steps.items()
    ]
    is_asked = any(study.kind == PUBLISHED for study in context.collection.studies)
    return found if is_asked or any(row.variant for row in found) else []


def _summary(mean: float, sd: float | None = None) -> Summary:
    return Summary(NUMBERS["seeds"], float(mean), None if sd is None else float(sd))


def _variant(context: PaperContext, task: str, algo: str, steps: int) -> Variant | None:
    """Return the variant with the published settings on the task as Gymnasium has it; of several
    budgets that with the most evaluations then."""

    def evaluations(variant: Variant) -> int:
        return sum(evaluation_at(run, steps) is not None for run in variant.runs)

    candidates = []
    for variant in context.all_variants:
        about = variant.task.settings
        is_task = about["env_id"] == task and not about["env_kwargs"]
        is_long_enough = (about["steps"] or 0) >= steps
        has_preset = has_settings(variant, algo, NUMBERS["preset"], {})
        if variant.is_result and is_task and is_long_enough and has_preset:
            candidates.append(variant)
    return max(candidates, key=evaluations, default=None)


def published_section(rows: Sequence[PublishedReturn]) -> Section | None:
    if not rows:
        return None
    columns = [
        words("Evaluation", "name"),
        words("Verdict", lambda row: verdict_cell(row.judged.verdict, row.judged.reason)),
        Column("Ours", "summary", ("mean", "sd"), digits=0),
        Column("Published", "published", ("published_mean", "published_sd"), digits=0),
        Column("Ours − published [95 %]", "difference", with_ends("difference"), digits=0),
        Column("Runs", "runs", "runs"),
        data("task", "algo", "steps", get=attrgetter("task", "algo", "steps")),
        data("verdict", "reason", get=attrgetter("judged.verdict", "judged.reason")),
        command(lambda row: row.variant.command if row.values else "", "command"),
    ]
    trained = [row for row in rows if row.judged.verdict != NO_DATA]
    caption = f"Mean ± sd of evaluations, ours and theirs ({NUMBERS['source']})"
    about = TEXTS["published"].format(
        margin=MARGIN_TEXT, preset=NUMBERS["preset"], seeds=NUMBERS["seeds"]
    )
    blocks: list[Block] = [_in_short(rows, trained), about]
    blocks.append(Table(PUBLISHED, caption, columns, rows))
    if trained:
        blocks.append([f"{row.name}: {row.judged.reason}." for row in trained])
    variants = {row.variant.label: row.variant for row in trained if row.variant}
    blocks += mixtures(variants.values())
    return Section(PUBLISHED, "Beside published returns", blocks)


def _in_short(rows: Sequence[PublishedReturn], trained: Sequence[PublishedReturn]) -> str:
    """Return the verdicts and numbers in a sentence each."""
    beside = f"Of {len(rows)} published returns, {len(trained)} have runs of ours"
    if not trained:
        return f"{beside}; none was trained here yet."
    beside += f": {tally(row.judged.verdict for row in trained)}."
    has_one_length = len({row.steps for row in trained}) == 1
    numbers = []
    for row in trained:
        if row.summary:
            name = row.short_name if has_one_length else row.name
            means = f"{row.summary.mean:,.0f} against {row.published.mean:,.0f}"
            numbers.append(f"{name}: {means}, {row.judged.verdict}")
    return f"{beside} Ours against theirs: {'; '.join(numbers)}." if numbers else beside
