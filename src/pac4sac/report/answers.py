"""The first screen of a report: on each task which variant is better, by how much and how surely,
and all verdicts at a glance."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
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
from pac4sac.report.rankings import best_first, ranking_figure
from pac4sac.report.tables import (
    Answer,
    Block,
    Cell,
    Picture,
    Section,
    Table,
    in_digits,
    verdict_cell,
    words,
)
from pac4sac.report.variants import Metric
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import Difference, Estimate

OnTasks = Mapping[str, Sequence[Compared]]  # by the title of the task


def compare_on_task(context: Context, task: str, metric: Metric | None = None) -> list[Compared]:
    """Compare all results on a task with its baseline, by its headline or another metric."""
    rows = []
    for group in context.groups[task]:
        rows += compare_headline(group.members, context.baselines[task], group.title, metric)
    return rows


def answer_on_task(rows: Sequence[Compared], question: str = "") -> Answer:
    """Return how the best variant compares with the baseline, and the verdicts on the others."""
    task = rows[0].variant.task
    question = question or f"Which is better on {task.title}, by {task.headline.title}?"
    text, verdict = _best_and_baseline(rows) or _without_comparison(rows)
    return Answer(question, text, verdict, section=f"task-{file_name(task.title)}")


def _best_and_baseline(rows: Sequence[Compared]) -> tuple[str, str] | None:
    """Return a text, and a verdict if none is better; None if nothing was compared."""
    baseline, ranked = rows[0].baseline, _best_first(rows)
    if baseline is None or not ranked:
        return None
    first, *others = ranked
    ours, theirs = first.variant.style.name, baseline.style.name
    rest = f" The others, against {theirs}: {_verdicts_in_words(others)}." if others else ""
    if first.verdict == BETTER:
        return f"{ours} is better than {theirs} by {by_how_much(first)}.{rest}", ""
    if first.verdict == WORSE:
        return f"{theirs} is better than {ours} by {by_how_much(first)}.{rest}", ""
    return f"{ours} against {theirs}, {how_much(first)}.{rest}", first.verdict


def _verdicts_in_words(rows: Sequence[Compared]) -> str:
    return in_words([(row.verdict, row.variant.style.name) for row in rows], VERDICTS)


def _best_first(rows: Sequence[Compared]) -> list[Compared]:
    """Return what was compared with the baseline, sorted by the difference."""
    lower_is_better = rows[0].variant.task.headline.lower_is_better
    differences = [(row.difference.value, row) for row in rows if row.difference]
    differences.sort(key=itemgetter(0), reverse=not lower_is_better)
    return [row for _, row in differences]


def _without_comparison(rows: Sequence[Compared]) -> tuple[str, str]:
    """Return a text with the numbers that are known, and a verdict."""
    metric = rows[0].variant.task.headline.key
    known = [row.variant for row in rows if row.variant.has_results]
    numbers = ", ".join(f"{v.style.name} {metric_cell(v, metric).text}" for v in known)
    start = f"{numbers};" if known else "No result yet:"
    if any(row.variant.under_way for row in rows):
        return f"{start} runs are under way.", UNFINISHED
    return f"{start} there is nothing to compare it with.", ""


def answer_on_tasks(on_tasks: Sequence[Sequence[Compared]], question: str) -> Answer:
    """Return the verdicts on each task, for a report in which other questions come first."""
    sentences = []
    for rows in on_tasks:
        task, baseline = rows[0].variant.task.title, rows[0].baseline
        if baseline:
            verdicts = _verdicts_in_words([row for row in rows if row.difference])
            sentences.append(f"{task}, against {baseline.style.name}: {verdicts}.")
    section = f"task-{file_name(on_tasks[0][0].variant.task.title)}"
    return Answer(question, " ".join(sentences), section=section)


def answers_on_tasks(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer which variant is better on each task."""
    question = asked_question(context) if len(tasks) == 1 else ""
    return [answer_on_task(rows, question) for rows in tasks.values()]


def asked_question(context: Context) -> str:
    """Return the question of the only comparison that asks one; nothing if several do."""
    questions = [study.question for study in _asking(context)]
    return questions[0] if len(questions) == 1 else ""


def answers_in_brief(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer the comparisons only, for a report that answers other questions first."""
    names = {study.name for study in _asking(context)}
    asked = {title: rows for title, rows in tasks.items() if _is_asked(rows, names)}
    question = asked_question(context)
    if question and len(asked) > 1:
        return [answer_on_tasks(list(asked.values()), question)]
    return answers_on_tasks(context, asked)


def _is_asked(rows: Sequence[Compared], studies: Set[str]) -> bool:
    """Return whether one of these studies has runs of a variant."""
    return any(row.variant.studies & studies for row in rows)


def _asking(context: Context) -> list[FoundStudy]:
    """Return the comparisons that ask a question."""
    studies = context.collection.studies
    return [study for study in studies if study.kind == "comparison" and study.question]


def summary_section(
    context: Context,
    answers: Sequence[Answer],
    grid: Table | None = None,
    figure: Picture | None = None,
) -> Section:
    """Return the first screen: answers, verdicts at a glance, a figure, what is missing.

    Without a grid or a figure, those of the comparisons on tasks are shown.
    """
    if tasks := compared_tasks(context):
        grid = grid or verdict_grid(tasks)
        figure = figure or _first_ranking(context, tasks)
    further: list[Block | None] = [grid, figure, unfinished(context)]
    blocks: list[Block] = [answers or "Nothing to compare yet."]
    blocks += [block for block in further if block]
    return Section("summary", "Answers", blocks)


def _first_ranking(context: Context, tasks: OnTasks) -> Picture | None:
    """Return the ranking of all variants on the first task."""
    title, rows = next(iter(tasks.items()))
    return ranking_picture(context, "ranking", f"All variants on {title}", rows)


def compared_tasks(context: Context) -> OnTasks:
    """Return the comparisons on each task that has results."""
    titles = [title for title in context.variants if context.results(title)]
    return {title: compare_on_task(context, title) for title in titles}


def unfinished(context: Context) -> str:
    """Return a sentence on how many runs each study lacks; nothing if none."""
    missing = context.collection.missing
    if not missing:
        return ""
    lacking = Counter[str]()
    for run in missing:
        lacking.update(run.studies or ["an experiment"])
    parts = [f"{study} lacks {n} {_runs(n)}" for study, n in sorted(lacking.items())]
    shared = f" ({len(missing)} in all)" if lacking.total() > len(missing) else ""
    return f"Not finished: {', '.join(parts)}{shared}."


def _runs(n: int) -> str:
    return "run" if n == 1 else "runs"


def how_much(row: Compared) -> str:
    """Return the difference from the baseline in a clause, with its p-value and P(better)."""
    task = row.variant.task
    difference = in_digits(row.difference, task.scale)
    return f"Δ {task.unit}: {difference}{_how_sure(row.p, row.improvement)}"


def by_how_much(row: Compared) -> str:
    """Return the size of a difference, with P(better) of the side that is better."""
    task, better = row.variant.task, row.improvement
    if better and row.verdict == WORSE:
        better = Estimate(1 - better.value)
    return (
        f"{in_digits(_size(row.difference), task.scale)} in {task.unit}{_how_sure(row.p, better)}"
    )


def _size(difference: Difference | None) -> Estimate | None:
    """Return the absolute value of a difference with its interval."""
    if difference is None:
        return None
    ends = [abs(end) for end in (difference.low, difference.high) if end is not None]
    return Estimate(abs(difference.value), *sorted(ends))


def _how_sure(p: float | None, better: Estimate | None) -> str:
    sure = []
    if p is not None:
        sure.append(p_text(p))
    if better:
        sure.append(f"P(better) = {better.value:.2f}")
    return f" ({', '.join(sure)})" if sure else ""


def verdict_grid(on_tasks: OnTasks) -> Table:
    """Return a table of variants by tasks."""
    found = {(row.variant.label, task): row for task, rows in on_tasks.items() for row in rows}
    named = {row.variant.label: variant_cell(row.variant) for row in found.values()}

    def cell(task: str, label: str) -> Cell:
        row = found.get((label, task))
        return _grid_cell(row) if row else Cell("")

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


def _grid_cell(row: Compared) -> Cell:
    """Return the verdict with the difference, or with the mean of what has no difference."""
    task = row.variant.task
    text = in_digits(row.difference, task.scale)
    if row.difference is None:
        text = metric_cell(row.variant, task.headline.key, task.scale).text
    return verdict_cell(row.verdict, text=text)


def ranking_picture(
    context: Context, name: str, title: str, rows: Sequence[Compared]
) -> Picture | None:
    """Return the figure of interquartile means, best on top; None if the baseline has none."""
    task, baseline = rows[0].variant.task, _baseline_label(rows)
    known = {row.variant.label: row.iqm for row in rows if row.iqm}
    if baseline not in known:
        return None
    ranked = best_first(known, lower_is_better=task.headline.lower_is_better)
    caption = f"{task.title}: interquartile mean with bootstrap 95 % interval, best on top"
    draw = partial(ranking_figure, title, ranked, context.styles, baseline, task.unit, task.scale)
    return Picture(name, caption, draw)


def _baseline_label(rows: Sequence[Compared]) -> str:
    """Return the label of the row that is the baseline; nothing if none is."""
    return next((row.variant.label for row in rows if row.is_baseline), "")
