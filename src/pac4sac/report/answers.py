"""The first screen of a report: on each task which variant is better, by how much and how surely,
and all verdicts at a glance."""

from collections import Counter
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
    """Tell how the best of the others compares with the baseline, then the rest in a word."""
    task, baseline = rows[0].variant.task, rows[0].baseline
    question = question or f"Which is better on {task.title}, by {task.headline.title}?"
    told = partial(Answer, question, section=f"task-{file_name(task.title)}")
    ranked = _best_first(rows)
    if not ranked or baseline is None:
        return told(*_without_comparison(rows))
    first, *others = ranked
    ours, theirs = first.variant.style.name, baseline.style.name
    rest = in_words([(row.verdict, row.variant.style.name) for row in others], VERDICTS)
    rest = f" The others, against {theirs}: {rest}." if others else ""
    if first.verdict == BETTER:
        return told(f"{ours} is better than {theirs} by {by_how_much(first)}.{rest}")
    if first.verdict == WORSE:
        return told(f"{theirs} is better than {ours} by {by_how_much(first)}.{rest}")
    return told(f"{ours} against {theirs}, {how_much(first)}.{rest}", first.verdict)


def _best_first(rows: Sequence[Compared]) -> list[Compared]:
    """Return what was compared with the baseline, by the difference."""
    sign = 1 if rows[0].variant.task.headline.lower_is_better else -1
    differences = [(sign * row.difference.value, row) for row in rows if row.difference]
    return [row for _, row in sorted(differences, key=itemgetter(0))]


def _without_comparison(rows: Sequence[Compared]) -> tuple[str, str]:
    """Return a text with the numbers that are known, and a verdict."""
    metric = rows[0].variant.task.headline.key
    under_way = any(row.variant.under_way for row in rows)
    nothing = "runs are under way" if under_way else "there is nothing to compare it with"
    known = [row.variant for row in rows if row.variant.has_results]
    numbers = ", ".join(f"{v.style.name} {metric_cell(v, metric).text}" for v in known)
    text = f"{numbers}; {nothing}." if known else f"No result yet: {nothing}."
    return text, UNFINISHED if under_way else ""


def answer_on_tasks(on_tasks: Sequence[Sequence[Compared]], question: str) -> Answer:
    """Tell the verdicts on each task in a word, where other questions come first."""
    sentences = []
    for rows in on_tasks:
        task, baseline = rows[0].variant.task.title, rows[0].baseline
        verdicts = [(row.verdict, row.variant.style.name) for row in rows if row.difference]
        if baseline:
            told = in_words(verdicts, VERDICTS)
            sentences.append(f"{task}, against {baseline.style.name}: {told}.")
    section = f"task-{file_name(on_tasks[0][0].variant.task.title)}"
    return Answer(question, " ".join(sentences), section=section)


def answers_on_tasks(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer which variant is better on each task."""
    question = asked_question(context) if len(tasks) == 1 else ""
    return [answer_on_task(rows, question) for rows in tasks.values()]


def asked_question(context: Context) -> str:
    """Return the question of the comparison that asks one; nothing if several do."""
    asking = [study.question for study in _asking(context)]
    return asking[0] if len(asking) == 1 else ""


def answers_in_brief(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer the comparisons only, for a report that answers other questions first."""
    names = {study.name for study in _asking(context)}
    about = {
        title: rows
        for title, rows in tasks.items()
        if any(row.variant.studies & names for row in rows)
    }
    question = asked_question(context)
    if question and len(about) > 1:
        return [answer_on_tasks(list(about.values()), question)]
    return answers_on_tasks(context, about)


def _asking(context: Context) -> list[FoundStudy]:
    studies = context.collection.studies
    return [study for study in studies if study.kind == "comparison" and study.question]


def summary_section(
    context: Context,
    answers: Sequence[Answer],
    grid: Table | None = None,
    figure: Picture | None = None,
) -> Section:
    """Compose the first screen: answers, verdicts at a glance, a figure, what is missing.

    Without a grid or a figure of their own, those of the comparisons on tasks are shown.
    """
    tasks = compared_tasks(context)
    if grid is None and tasks:
        grid = verdict_grid(tasks)
    if figure is None and tasks:
        title, rows = next(iter(tasks.items()))
        figure = ranking_picture(context, "ranking", f"All variants on {title}", rows)
    further: list[Block | None] = [grid, figure, unfinished(context)]
    blocks: list[Block] = [answers or "Nothing to compare yet."]
    blocks += [block for block in further if block]
    return Section("summary", "Answers", blocks)


def compared_tasks(context: Context) -> OnTasks:
    """Return the comparisons on each task that has results."""
    titles = [title for title in context.variants if context.results(title)]
    return {title: compare_on_task(context, title) for title in titles}


def unfinished(context: Context) -> str:
    """Tell in a sentence how many runs each study lacks; nothing if none."""
    missing = context.collection.missing
    if not missing:
        return ""
    lacking = Counter(study for run in missing for study in run.studies or ("an experiment",))
    parts = [f"{study} lacks {n} {_runs(n)}" for study, n in sorted(lacking.items())]
    shared = f" ({len(missing)} in all)" if lacking.total() > len(missing) else ""
    return f"Not finished: {', '.join(parts)}{shared}."


def _runs(n: int) -> str:
    return "run" if n == 1 else "runs"


def how_much(row: Compared) -> str:
    """Return the difference in a clause, with how sure it is."""
    task, better = row.variant.task, row.improvement
    sure = _how_sure(row.p, better.value if better else None)
    return f"Δ {task.unit}: {in_digits(row.difference, task.scale)}{sure}"


def by_how_much(row: Compared) -> str:
    """Return the size of a difference, from the side of the one that is better."""
    task, difference, better = row.variant.task, row.difference, row.improvement
    chance = better.value if better else None
    if chance is not None and row.verdict == WORSE:
        chance = 1 - chance
    return f"{in_digits(_size(difference), task.scale)} in {task.unit}{_how_sure(row.p, chance)}"


def _size(difference: Difference | None) -> Estimate | None:
    if difference is None:
        return None
    ends = [abs(end) for end in (difference.low, difference.high) if end is not None]
    return Estimate(abs(difference.value), *sorted(ends))


def _how_sure(p: float | None, chance: float | None) -> str:
    sure = [p_text(p)] if p is not None else []
    if chance is not None:
        sure.append(f"P(better) = {chance:.2f}")
    return f" ({', '.join(sure)})" if sure else ""


def verdict_grid(on_tasks: OnTasks) -> Table:
    """Return a table of variants by tasks."""
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
    draw = partial(ranking_figure, title, ranked, context.styles, baseline, task.unit, task.scale)
    return Picture(name, caption, draw) if baseline in ranked else None
