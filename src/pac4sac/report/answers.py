"""What a report of somebody's own runs says first: on each task which variant is better, by how
much and how surely, and all verdicts at a glance. It knows no paper."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter

from pac4sac.base.text import file_name, p_text
from pac4sac.report.comparison import (
    BETTER,
    UNFINISHED,
    VERDICTS,
    WORSE,
    Compared,
    Context,
    compare_headline,
    in_words,
    metric_cell,
    variant_cell,
)
from pac4sac.report.rankings import ranking_figure
from pac4sac.report.tables import Answer, Cell, Picture, Table, in_digits, verdict_cell, words
from pac4sac.report.variants import Metric
from pac4sac.runs.statistics import Estimate


def compare_on_task(context: Context, task: str, metric: Metric | None = None) -> list[Compared]:
    """All results on a task with its baseline, by its headline or another metric, each corrected
    for the others of its family."""
    baseline, families = context.baselines[task], context.families[task]
    return [
        row
        for family in families
        for row in compare_headline(family.members, baseline, family.title, metric)
    ]


def answer_on_task(rows: Sequence[Compared], question: str = "") -> Answer:
    """By the rival that has come furthest, whether ahead of the baseline or behind it; then the
    others in a word."""
    task = rows[0].variant.task
    question = question or f"Which is better on {task.title}, by {task.headline.title}?"
    told = partial(Answer, question, section=f"task-{file_name(task.title)}")
    sign = 1 if task.headline.lower_is_better else -1
    differences = [(sign * row.difference.value, row) for row in rows if row.difference]
    rivals = [row for _, row in sorted(differences, key=itemgetter(0))]
    if not rivals or rows[0].baseline is None:
        under_way = any(row.variant.under_way for row in rows)
        known = [row for row in rows if row.variant.has_results]
        numbers = ", ".join(
            f"{row.variant.look.name} {metric_cell(row.variant, task.headline.key).text}"
            for row in known
        )
        nothing = "runs are under way" if under_way else "there is nothing to compare it with"
        return told(
            f"{numbers}; {nothing}." if known else f"No result yet: {nothing}.",
            UNFINISHED if under_way else "",
        )
    first, *others = rivals
    ours, theirs = first.variant.look.name, rows[0].baseline.look.name
    rest = in_words([(row.verdict, row.variant.look.name) for row in others], VERDICTS)
    rest = f" The others, against {theirs}: {rest}." if others else ""
    if first.verdict == BETTER:
        return told(f"{ours} is better than {theirs} by {by_how_much(first)}.{rest}")
    if first.verdict == WORSE:
        return told(f"{theirs} is better than {ours} by {by_how_much(first)}.{rest}")
    return told(f"{ours} against {theirs}, {how_much(first)}.{rest}", first.verdict)


def answer_on_tasks(on_tasks: Sequence[Sequence[Compared]], question: str) -> Answer:
    """On each task in a word, where other questions come first."""
    told = []
    for rows in on_tasks:
        task, baseline = rows[0].variant.task.title, rows[0].baseline
        rivals = [(row.verdict, row.variant.look.name) for row in rows if row.difference]
        told.append(
            f"{task}, against {baseline.look.name}: {in_words(rivals, VERDICTS)}."
            if baseline
            else ""
        )
    return Answer(
        question,
        " ".join(filter(None, told)),
        section=f"task-{file_name(on_tasks[0][0].variant.task.title)}",
    )


def how_much(row: Compared) -> str:
    """The difference in a clause, with what tells how sure it is."""
    task, better = row.variant.task, row.improvement
    sure = _how_sure(row.p, better.value if better else None)
    return f"Δ {task.unit}: {in_digits(row.difference, task.scale)}{sure}"


def by_how_much(row: Compared) -> str:
    """As `how_much`, told by the one that is better."""
    task, difference, better = row.variant.task, row.difference, row.improvement
    ends = (
        sorted(abs(end) for end in (difference.low, difference.high) if end is not None)
        if difference
        else []
    )
    size = Estimate(abs(difference.value), *ends) if difference else None
    chance = (better.value if row.verdict == BETTER else 1 - better.value) if better else None
    return f"{in_digits(size, task.scale)} in {task.unit}{_how_sure(row.p, chance)}"


def _how_sure(p: float | None, chance: float | None) -> str:
    sure = [p_text(p)] if p is not None else []
    sure += [f"P(better) = {chance:.2f}"] if chance is not None else []
    return f" ({', '.join(sure)})" if sure else ""


def verdict_grid(on_tasks: Mapping[str, Sequence[Compared]]) -> Table:
    """Variants by tasks."""
    found = {(row.variant.label, task): row for task, rows in on_tasks.items() for row in rows}
    named = {row.variant.label: variant_cell(row.variant) for row in found.values()}

    def cell(task: str, label: str) -> Cell:
        row = found.get((label, task))
        if row is None:
            return Cell("")
        about = row.variant.task
        if row.difference is None:
            return verdict_cell(
                row.verdict, text=metric_cell(row.variant, about.headline.key, about.scale).text
            )
        return verdict_cell(row.verdict, text=in_digits(row.difference, about.scale))

    columns = [
        words("Variant", named.__getitem__),
        *(words(task, partial(cell, task)) for task in on_tasks),
    ]
    units = dict.fromkeys(rows[0].variant.task.unit for rows in on_tasks.values())
    caption = (
        f"Against the baseline: difference of the means [95 %] in {' or '.join(units)}; of the "
        "baseline, mean ± sd"
    )
    return Table("verdicts", caption, columns, list(named))


def ranking_picture(
    context: Context, name: str, title: str, rows: Sequence[Compared]
) -> Picture | None:
    task, sign = rows[0].variant.task, 1 if rows[0].variant.task.headline.lower_is_better else -1
    known = [(row.iqm, row.variant.label) for row in rows if row.iqm]
    baseline = next((row.variant.label for row in rows if row.is_baseline), "")
    ranked = {label: iqm for iqm, label in sorted(known, key=lambda both: sign * both[0].value)}
    caption = f"{task.title}: interquartile mean with bootstrap 95 % interval, best on top"
    draw = partial(ranking_figure, title, ranked, context.looks, baseline, task.unit, task.scale)
    return Picture(name, caption, draw) if baseline in ranked else None
