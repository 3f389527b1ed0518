"""The first screen of a report: the better variant on each task with its effect and CI, and a grid
of all verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial
from operator import itemgetter

from pac4sac.base.text import file_name, p_text
from pac4sac.report.comparison import (
    BETTER,
    NO_DIFFERENCE,
    UNFINISHED,
    UNTESTED,
    USUALLY,
    WORSE,
    Compared,
    Context,
    compare_headline,
    metric_cell,
    variant_cell,
)
from pac4sac.report.figures import DOUBLE, SINGLE
from pac4sac.report.provenance import incomplete_runs
from pac4sac.report.rankings import best_first, ranking_figure
from pac4sac.report.sentences import listed, verdict_sentences
from pac4sac.report.tables import (
    TEXTS,
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
from pac4sac.report.variants import Metric, Variant
from pac4sac.runs.collection import FoundStudy

IN_FIRST_FIGURE = 12  # variants
OnTasks = Mapping[str, Sequence[Compared]]  # title of a task -> comparisons


def compare_on_task(context: Context, task: str, metric: Metric | None = None) -> list[Compared]:
    """Compare all results on a task with its baseline, by its headline or another metric."""
    rows = []
    for group in context.groups[task]:
        rows += compare_headline(group.members, context.baselines[task], group.title, metric)
    return rows


def compared_by_answers(context: Context, title: str) -> list[list[Compared]]:
    """Return the comparisons on a task, one list per answering metric that has values."""
    task = context.variants[title][0].task
    by_metric = [compare_on_task(context, title, metric) for metric in task.answers_by]
    return [rows for rows in by_metric if any(row.values for row in rows)] or by_metric[-1:]


def answer_on_task(by_metric: Sequence[Sequence[Compared]], question: str = "") -> Answer:
    """Answer the question on a task: best variant against baseline, then the other verdicts."""
    rows = by_metric[-1]
    task = rows[0].variant.task
    question = question or f"Which algorithm is better on {task.title}?"
    start = "By this metric," if len(by_metric) > 1 else ""
    texts = [text for each in by_metric if (text := _best_and_baseline(each, start))]
    text, verdict = (" ".join(texts), "") if texts else _without_comparison(by_metric)
    return Answer(question, text, verdict, section=f"task-{file_name(task.title)}")


def _best_and_baseline(rows: Sequence[Compared], start: str) -> str:
    """Compare the best variant with the baseline in a sentence; add the other verdicts."""
    baseline, ranked = rows[0].baseline, _best_first(rows)
    if baseline is None or not ranked:
        return ""
    first, *others = ranked
    return f"{effect_sentence(first)} {_verdicts_in_words(others, baseline, start)}".strip()


def _verdicts_in_words(rows: Sequence[Compared], baseline: Variant, start: str) -> str:
    verdicts = [(row.verdict, row.variant.style.name) for row in rows]
    templates = TEXTS["verdicts"]["baseline"]
    return verdict_sentences(verdicts, templates, start, baseline=baseline.style.name)


def _best_first(rows: Sequence[Compared]) -> list[Compared]:
    """Return the variants other than the baseline, sorted by their difference, best first."""
    differences = [(row.difference.value, row) for row in rows if row.difference]
    differences.sort(key=itemgetter(0), reverse=not rows[0].metric.lower_is_better)
    return [row for _, row in differences]


def _without_comparison(by_metric: Sequence[Sequence[Compared]]) -> tuple[str, str]:
    """Return a sentence with the known means and a verdict, for a task without a comparison."""
    rows = by_metric[-1]
    numbers = [text for each in by_metric if (text := _known_numbers(each))]
    start = " ".join(numbers) or "There are no results yet."
    if any(row.variant.in_progress for row in rows):
        return f"{start} Runs are in progress.", UNFINISHED
    return f"{start} There is no other variant to compare with.", ""


def _known_numbers(rows: Sequence[Compared]) -> str:
    """Return the mean of each variant by one metric in a sentence; empty without results."""
    metric, task = rows[0].metric, rows[0].variant.task
    known = [row.variant for row in rows if row.variant.values(metric.key)]
    numbers = [
        f"{v.style.name} {metric_cell(v, metric.key, task.scale_of(metric)).text}" for v in known
    ]
    return f"By {metric.title}: {', '.join(numbers)}." if numbers else ""


def effect_sentence(row: Compared) -> str:
    """Describe a comparison in one sentence that names both sides."""
    if row.baseline is None or row.difference is None:
        return ""
    ours, theirs = row.variant.style.name, row.baseline.style.name
    metric, where = row.metric, f"on {row.variant.task.title}"
    numbers = _numbers_of_effect(row)
    if row.verdict in (BETTER, WORSE):
        side = "lower" if row.difference.value < 0 else "higher"
        return f"{ours} has {metric.with_article(side)} than {theirs} {where} ({numbers})."
    if USUALLY in row.verdict:
        side = "lower" if (BETTER in row.verdict) == metric.lower_is_better else "higher"
        start = f"{ours} usually has {metric.with_article(side)} than {theirs} {where}"
        ranks = f"rank test: {p_text(row.p_ranks)}" if row.p_ranks is not None else "rank test"
        return f"{start} ({ranks}; means: {numbers})."
    if row.verdict == NO_DIFFERENCE:
        start = f"We found no significant difference in {metric.title} between {ours} and {theirs}"
        return f"{start} {where} ({numbers})."
    if row.verdict == UNTESTED:
        start = f"The difference in {metric.title} between {ours} and {theirs} {where} was not"
        return f"{start} tested ({numbers}): {_why_untested(row)}."
    return f"{ours} compared with {theirs} {where} by {metric.title}: {row.verdict} ({numbers})."


def _why_untested(row: Compared) -> str:
    theirs = row.quantity.values(row.baseline) if row.baseline else []
    if min(len(row.values), len(theirs)) < 2:
        return "a test needs at least two seeds on each side"
    return "all seeds of each side have the same result"


def _numbers_of_effect(row: Compared) -> str:
    """Return the difference with its interval, p-value and numbers of runs."""
    value, *ends = in_digits(row.difference, row.scale).split(" ", 1)
    parts = [f"Δ = {value}" + (" thousand" if row.scale > 1 else "")]
    parts += [f"95% CI {end}" for end in ends]
    parts += [p_text(row.p)] if row.p is not None else []
    theirs = row.quantity.values(row.baseline) if row.baseline else []
    return ", ".join([*parts, f"n = {len(row.values)} vs {len(theirs)}"])


def answer_on_tasks(on_tasks: Sequence[Sequence[Compared]], question: str) -> Answer:
    """Return the verdicts on each task, for a report in which other questions come first."""
    sentences = []
    for rows in on_tasks:
        task, baseline = rows[0].variant.task.title, rows[0].baseline
        if baseline:
            compared = [row for row in rows if row.difference]
            sentences.append(_verdicts_in_words(compared, baseline, f"On {task},"))
    section = f"task-{file_name(on_tasks[0][0].variant.task.title)}"
    return Answer(question, " ".join(sentences), section=section)


def answers_on_tasks(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer which variant is better on each task."""
    question = asked_question(context) if len(tasks) == 1 else ""
    return [answer_on_task(compared_by_answers(context, title), question) for title in tasks]


def asked_question(context: Context) -> str:
    """Return the question of the comparison if exactly one study asks a question, else ""."""
    questions = [study.question for study in _asking(context)]
    return questions[0] if len(questions) == 1 else ""


def answers_in_brief(context: Context, tasks: OnTasks) -> list[Answer]:
    """Answer only the comparisons that ask a question, for a report that puts other questions
    first."""
    names = {study.name for study in _asking(context)}
    asked = {title: rows for title, rows in tasks.items() if _is_asked(rows, names)}
    question = asked_question(context)
    if question and len(asked) > 1:
        return [answer_on_tasks(list(asked.values()), question)]
    return answers_on_tasks(context, asked)


def _is_asked(rows: Sequence[Compared], studies: Set[str]) -> bool:
    """Return whether one of these studies has runs of a compared variant."""
    return any(row.variant.studies & studies for row in rows)


def _asking(context: Context) -> list[FoundStudy]:
    """Return the comparison studies that state a question."""
    studies = context.collection.studies
    return [study for study in studies if study.kind == "comparison" and study.question]


def summary_section(
    context: Context,
    answers: Sequence[Answer],
    grid: Table | None = None,
    figure: Picture | None = None,
) -> Section:
    """Return the first screen: answers, grid of verdicts, a figure, missing runs.

    If no grid or figure is given, they are made from the comparisons on tasks.
    """
    if tasks := compared_tasks(context):
        grid = grid or verdict_grid(_columns_of_grid(context, tasks))
        figure = figure or _first_ranking(context, tasks)
    further: list[Block | None] = [grid, figure, unfinished(context)]
    blocks: list[Block] = [answers or "Nothing to compare yet."]
    blocks += [block for block in further if block]
    return Section("summary", "Answers", blocks)


def _first_ranking(context: Context, tasks: OnTasks) -> Picture | None:
    """Return the ranking of the best variants on the first task, by its first answer."""
    title = next(iter(tasks))
    rows = compared_by_answers(context, title)[0]
    return ranking_picture(context, "ranking", f"Variants on {title}", rows, most=IN_FIRST_FIGURE)


def compared_tasks(context: Context) -> OnTasks:
    """Return the comparisons on each task that has results."""
    titles = [title for title in context.variants if context.results(title)]
    return {title: compare_on_task(context, title) for title in titles}


def unfinished(context: Context) -> str:
    """Describe the runs without a result and the studies they belong to; empty if there are
    none."""
    parts = [f"{n} {state} {_runs(n)}" for state, n in incomplete_runs(context).items()]
    if missing := context.collection.missing:
        lacking = Counter(study for run in missing for study in run.studies or ["an experiment"])
        named = ", ".join(f"{study}: {n}" for study, n in sorted(lacking.items()))
        parts.append(f"{len(missing)} planned {_runs(len(missing))} not yet started ({named})")
    return f"There are no results from {listed(parts)}." if parts else ""


def _runs(n: int) -> str:
    return "run" if n == 1 else "runs"


def _columns_of_grid(context: Context, tasks: OnTasks) -> OnTasks:
    """Return the comparisons of the grid, by the title of their column."""
    columns: dict[str, Sequence[Compared]] = {}
    for title in tasks:
        by_metric = compared_by_answers(context, title)
        for rows in by_metric:
            columns[title if len(by_metric) == 1 else f"{title}, {rows[0].metric.title}"] = rows
    return columns


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
    units = dict.fromkeys(unit_of(rows[0]) for rows in on_tasks.values())
    caption = (
        f"Differences from the baseline in {' or '.join(units)}, with 95% CIs. "
        "The row of the baseline shows its mean ± std"
    )
    return Table("verdicts", caption, columns, list(named))


def unit_of(row: Compared) -> str:
    return row.metric.title + (", thousands" if row.scale > 1 else "")


def _grid_cell(row: Compared) -> Cell:
    """Return a cell with the verdict and the difference, or with the mean if there is no
    difference."""
    text = in_digits(row.difference, row.scale)
    if row.difference is None:
        text = metric_cell(row.variant, row.metric.key, row.scale).text
    return verdict_cell(row.verdict, text=text)


def ranking_picture(
    context: Context, name: str, title: str, rows: Sequence[Compared], most: int | None = None
) -> Picture | None:
    """Return the figure of interquartile means, best on top; None if the baseline has none.

    `most` limits the number of variants and makes the figure as narrow as a phone.
    """
    task, baseline, metric = rows[0].variant.task, _baseline_label(rows), rows[0].metric
    known = {row.variant.label: row.iqm for row in rows if row.iqm}
    if baseline not in known:
        return None
    ranked = best_first(known, lower_is_better=metric.lower_is_better)
    if most is not None:
        first = list(ranked)[:most]
        ranked = {label: iqm for label, iqm in ranked.items() if label in (*first, baseline)}
    caption = f"{task.title}: interquartile means with bootstrap 95% CIs, best variant on top"
    draw = partial(
        ranking_figure,
        title,
        ranked,
        context.styles,
        baseline,
        unit_of(rows[0]),
        rows[0].scale,
        SINGLE if most is not None else DOUBLE,
    )
    return Picture(name, caption, draw)


def _baseline_label(rows: Sequence[Compared]) -> str:
    """Return the label of the baseline's row; empty if there is none."""
    return next((row.variant.label for row in rows if row.is_baseline), "")
