"""The comparison of our evaluations with published returns, after as many steps on the same version
of a task."""

from collections.abc import Iterator, Sequence
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
from pac4sac.report.sentences import listed
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
from pac4sac.report.variants import TaskView, Variant
from pac4sac.runs.metrics import evaluation_at
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, Summary, summarise


@dataclass(frozen=True)
class PublishedReturn:
    """Compare a published mean return of an algorithm with our runs at its settings."""

    task: str
    algo: str
    steps: int  # training steps before the evaluation
    published: Summary
    variant: Variant | None

    @property
    def name(self) -> str:
        return f"{self.short_name} after {self.steps:,} steps"

    @property
    def short_name(self) -> str:
        return f"{KNOWN[self.algo].name} on {self.task}"

    @cached_property
    def evaluations(self) -> list[tuple[RunRecord, float | None]]:
        """Return our runs with the mean of that evaluation, None for a run that has not reached
        it."""
        runs = self.variant.runs if self.variant else []
        return [(run, evaluation_at(run, self.steps)) for run in runs]

    @cached_property
    def values(self) -> list[float]:
        """Return the means of the runs that have reached that evaluation."""
        return [value for _, value in self.evaluations if value is not None]

    @property
    def summary(self) -> Summary | None:
        return summarise(self.values) if self.values else None

    @cached_property
    def judged(self) -> Verdict:
        """Return the verdict on our mean against the published one."""
        if not self.evaluations:
            return Verdict(NO_DATA, "not trained")
        # By their status: a run that is solved is complete for other metrics, and may still be
        # training.
        lacking = [run.status for run, value in self.evaluations if value is None]
        diverged = lacking.count("diverged")
        if waiting := len(lacking) - diverged - lacking.count("finished"):
            return Verdict(UNFINISHED, f"{waiting} of {len(self.evaluations)} runs are in progress")
        if not self.values:
            return Verdict(NO_DATA, f"no run was evaluated after {self.steps:,} steps")
        return without_diverged(compare_returns(self.values, self.published), diverged)

    @property
    def difference(self) -> Estimate | None:
        """Return our mean minus the published one; None without a run."""
        if self.summary is None:
            return None
        difference = self.summary.mean - self.published.mean
        return Estimate(difference, self.judged.low, self.judged.high)

    @property
    def runs(self) -> Cell:
        trained = len(self.evaluations)
        return Cell(f"{len(self.values)} of {trained}" if trained else "0", len(self.values))


def published_returns(context: PaperContext) -> list[PublishedReturn]:
    """Return all published numbers; empty if no run or study concerns one of them."""
    found = []
    for task, algo, steps, numbers in _published_numbers():
        variant = _variant(context, task, algo, steps)
        found.append(PublishedReturn(task, algo, steps, _summary(*numbers), variant))
    is_asked = any(study.kind == PUBLISHED for study in context.collection.studies)
    return found if is_asked or any(row.variant for row in found) else []


def _published_numbers() -> Iterator[tuple[str, str, int, list[float]]]:
    """Yield task, algorithm, steps of training and the published numbers."""
    for task, by_algo in NUMBERS["returns"].items():
        for algo, by_steps in by_algo.items():
            for steps, numbers in by_steps.items():
                yield task, algo, int(steps), numbers


def _summary(mean: float, sd: float) -> Summary:
    return Summary(NUMBERS["seeds"], float(mean), float(sd))


def _variant(context: PaperContext, task: str, algo: str, steps: int) -> Variant | None:
    """Return the variant to compare: the first preset trained on Gymnasium's task; of several
    budgets, the one with the most evaluations at this step."""

    def evaluations(variant: Variant) -> int:
        return sum(evaluation_at(run, steps) is not None for run in variant.runs)

    on_task = [v for v in context.all_variants if v.is_result and _is_task(v.task, task, steps)]
    for preset in NUMBERS["presets"]:
        comparable = [v for v in on_task if has_settings(v, algo, preset, {})]
        if comparable:
            return max(comparable, key=evaluations)
    return None


def _is_task(task: TaskView, env_id: str, steps: int) -> bool:
    """Return whether a task is Gymnasium's unchanged one, with a sufficient budget."""
    about = task.settings
    return about["env_id"] == env_id and not about["env_kwargs"] and (about["steps"] or 0) >= steps


def published_section(rows: Sequence[PublishedReturn]) -> Section | None:
    """Return the section that compares our returns with published ones."""
    if not rows:
        return None
    trained = [row for row in rows if row.judged.verdict != NO_DATA]
    about = TEXTS["published"].format(
        margin=MARGIN_TEXT, preset=NUMBERS["presets"][0], seeds=NUMBERS["seeds"]
    )
    blocks: list[Block] = [_in_short(rows, trained), about, _table(rows)]
    if trained:
        blocks.append([f"For {row.name}, {row.judged.reason}." for row in trained])
    variants = {row.variant.label: row.variant for row in trained if row.variant}
    blocks += mixtures(variants.values())
    return Section(PUBLISHED, "Comparison with published returns", blocks)


def _table(rows: Sequence[PublishedReturn]) -> Table:
    """Return the table of all published numbers with verdicts on ours."""
    columns = [
        words("Evaluation", "name"),
        words("Verdict", lambda row: verdict_cell(row.judged.verdict, row.judged.reason)),
        Column("Ours", "summary", ("mean", "sd"), digits=0),
        Column("Published", "published", ("published_mean", "published_sd"), digits=0),
        Column("Ours − published [95%]", "difference", with_ends("difference"), digits=0),
        Column("Runs", "runs", "runs"),
        data("task", "algo", "steps", get=attrgetter("task", "algo", "steps")),
        data("verdict", "reason", get=attrgetter("judged.verdict", "judged.reason")),
        command(lambda row: row.variant.command if row.values else "", "command"),
    ]
    caption = f"Evaluation returns (mean ± std): our runs and published runs ({NUMBERS['source']})"
    return Table(PUBLISHED, caption, columns, rows)


def _in_short(rows: Sequence[PublishedReturn], trained: Sequence[PublishedReturn]) -> str:
    """Return a sentence with the verdicts and one with the numbers."""
    text = f"We have runs for {len(trained)} of the {len(rows)} published returns"
    if not trained:
        return f"{text}."
    text += f". Of our returns, {tally(row.judged.verdict for row in trained)}."
    name_of = attrgetter("short_name" if len({row.steps for row in trained}) == 1 else "name")
    numbers = []
    for row in trained:
        if row.summary:
            other = f"published: {row.published.mean:,.0f}; {row.judged.verdict}"
            numbers.append(f"{row.summary.mean:,.0f} for {name_of(row)} ({other})")
    return f"{text} Our mean return is {listed(numbers)}." if numbers else text
