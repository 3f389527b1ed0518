"""The first screen of a report: for each study what it asks and what came of it, and the verdicts
on all claims."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pac4sac.paper.claims import (
    CONTRADICTED,
    HOLDS,
    IN_PART,
    NOT_SHOWN,
    ClaimTest,
    JudgedClaim,
    verdict_grid,
    verdict_of,
)
from pac4sac.paper.cost import SOLVING, CostUntilSolved
from pac4sac.paper.families import BEST, BEYOND, CONTROLS, PUBLISHED, PaperContext
from pac4sac.paper.numbers import shipped_study
from pac4sac.paper.study_sections import chosen_answer, compare_study
from pac4sac.report import answers
from pac4sac.report.comparison import BETTER, WORSE, Compared
from pac4sac.report.tables import Answer, Block, Picture, Section
from pac4sac.report.uncertainty import uncertainty_answer
from pac4sac.runs.collection import CHOOSING, FoundStudy

# In the order of their answers; those of the first are claims of the paper.
CLAIMED = ("table-1", "table-2", "controls", "shooting", "overestimation", "cost")
UNCERTAINTY = "uncertainty"
OPEN = (BEYOND, BEST, *CHOOSING)
SECTIONS = {"overestimation": "bias"}  # where it is not called like the kind
UNDECIDED = "No complete run decides it yet."
# where it is not what the study asks
CLAIMS = {"controls": "a gain by the critic itself", "overestimation": "a cure"}


def summary_section(
    context: PaperContext,
    judged: Sequence[JudgedClaim],
    of_tables: Mapping[str, str],
    figure: Picture | None,
) -> Section:
    """`of_tables` are sentences on how our numbers stand beside those of the paper's tables, and
    others that were published."""
    on_tasks = {
        title: answers.compare_on_task(context, title)
        for title in context.variants
        if context.results(title)
    }
    told = _of_studies(context, judged, of_tables)
    # What nobody asked in so many words is which variant is better.
    asked = [
        study
        for study in context.collection.studies
        if study.kind == "comparison" and study.question
    ]
    if not told or asked:
        names = {study.name for study in asked}
        about = [
            rows
            for rows in on_tasks.values()
            if not told or any(row.variant.studies & names for row in rows)
        ]
        question = asked[0].question if len(asked) == 1 else ""
        if told and question and len(about) > 1:
            told.append(answers.answer_on_tasks(about, question))
        else:
            told += [
                answers.answer_on_task(rows, question if len(about) == 1 else "") for rows in about
            ]
    grid = verdict_grid(judged) or (answers.verdict_grid(on_tasks) if on_tasks else None)
    if figure is None and on_tasks:
        title, rows = next(iter(on_tasks.items()))
        figure = answers.ranking_picture(context, "ranking", f"All variants on {title}", rows)
    blocks: list[Block] = [
        told,
        *([grid] if grid else []),
        *([figure] if figure else []),
        *_unfinished(context),
    ]
    return Section(
        "summary", "Answers", blocks if told else ["Nothing to compare yet.", *blocks[1:]]
    )


def _unfinished(context: PaperContext) -> list[str]:
    missing = context.collection.missing
    lacking = Counter(study for run in missing for study in run.studies or ("an experiment",))
    lacks = ", ".join(
        f"{study} lacks {n} {'run' if n == 1 else 'runs'}" for study, n in sorted(lacking.items())
    )
    shared = f" ({len(missing)} in all)" if lacking.total() > len(missing) else ""
    return [f"Not finished: {lacks}{shared}."] if missing else []


def _of_studies(
    context: PaperContext, judged: Sequence[JudgedClaim], of_tables: Mapping[str, str]
) -> list[Answer]:
    """What was to choose a setting is answered in its own section, unless nothing else was
    asked."""
    studies = {study.name: study for study in context.collection.studies}.values()
    told, choosing = list[Answer](), list[Answer]()
    for kind in (*CLAIMED, SOLVING, UNCERTAINTY, *OPEN, PUBLISHED):
        asking = [
            study for study in studies if (SOLVING if study.name == SOLVING else study.kind) == kind
        ]
        claims = [claim for claim in judged if claim.study == kind]
        if kind in CHOOSING:
            choosing += [
                Answer(_question(study), chosen_answer(context, study), section=kind)
                for study in asking
            ]
        elif kind in CLAIMED and claims:
            question = _question(asking[0]) if asking else str(shipped_study(kind)["question"])
            answer = _of_claims(question, claims, kind)
            beside = _better_controls(context) if kind == CONTROLS else of_tables.get(kind, "")
            told.append(replace(answer, text=f"{answer.text} {beside}".strip()))
        elif kind == SOLVING:
            soonest = CostUntilSolved(context.collection.costs, context.rows.table_1).answer()
            told += [
                Answer(_question(study), soonest or UNDECIDED, section="cost") for study in asking
            ]
        elif kind in OPEN and asking:
            on_tasks = {title: compare_study(context, kind, title) for title in context.variants}
            told += _of_comparisons(_question(asking[0]), on_tasks, kind)
        elif kind == UNCERTAINTY:
            told += [
                Answer(_question(study), uncertainty_answer(context), section=kind)
                for study in asking[:1]
            ]
        elif kind == PUBLISHED:
            told += [Answer(_question(study), of_tables[kind], section=kind) for study in asking]
        elif asking:
            told.append(Answer(_question(asking[0]), UNDECIDED))
    return told or choosing


def _question(study: FoundStudy) -> str:
    return study.question or study.title


def _of_claims(question: str, claims: Sequence[JudgedClaim], kind: str) -> Answer:
    """How many comparisons speak for it, and the clearest of those that make the verdict."""
    section = SECTIONS.get(kind, kind)
    tests = [test for claim in claims for test in claim.tests]
    verdict = verdict_of(tests)
    speaks = {HOLDS: True, IN_PART: True, CONTRADICTED: False}.get(verdict)
    decisive = [
        (claim, test)
        for claim in claims
        for test in claim.tests
        if test.estimate and _decides(test, speaks)
    ]
    if not decisive:
        return Answer(question, "Runs are under way.", verdict, section)
    claim, clearest = min(decisive, key=lambda both: 0.0 if both[1].p is None else both[1].p)
    against = sum(test.speaks_for_it is False for test in tests)
    speaking = sum(test.speaks_for_it is True for test in tests)
    counts = f"{speaking} of {len(tests)} comparisons speak for {CLAIMS.get(kind, 'it')}"
    counts += f", {against} against it" if against else ""
    number = f"{claim.measure}{claim.shown_in}, {claim.on}: {clearest.name} {clearest.text}"
    return Answer(
        question,
        f"{counts}. Clearest: {number}." if len(tests) > 1 else f"{number}.",
        verdict,
        section,
    )


def _better_controls(context: PaperContext) -> str:
    """Which are shown to do better than what they are to explain."""
    rows = [row for title in context.variants for row in compare_study(context, CONTROLS, title)]
    better = [
        f"{row.variant.look.name} on {row.variant.task.title}"
        for row in rows
        if row.verdict == BETTER
    ]
    return f"Better than {rows[0].variant.look.name}: {', '.join(better)}." if better else ""


def _decides(test: ClaimTest, speaks: bool | None) -> bool:
    return speaks is None or test.speaks_for_it is speaks


def _of_comparisons(
    question: str, on_tasks: Mapping[str, Sequence[Compared]], kind: str
) -> list[Answer]:
    """The preset is to beat the others, all else of a study to beat what it is compared with."""
    rows = [row for compared in on_tasks.values() for row in compared if row.difference]
    if not rows:
        return [Answer(question, UNDECIDED, section=kind)]
    hoped, feared = (WORSE, BETTER) if kind == BEST else (BETTER, WORSE)
    counts = Counter(row.verdict for row in rows)
    clearest = min(
        rows, key=lambda row: (row.verdict != hoped, row.verdict != feared, row.p or 0.0)
    )
    verdict = HOLDS if counts[hoped] == len(rows) else IN_PART if counts[hoped] else NOT_SHOWN
    baseline = rows[0].baseline.look.name if rows[0].baseline else ""
    text = (
        f"Of {len(rows)} comparisons with {baseline} {counts[BETTER]} are better and "
        f"{counts[WORSE]} worse"
    )
    text = f"{baseline}, {_beats(rows)}" if kind == BEST else text
    on = f"{clearest.variant.look.name} on {clearest.variant.task.title} is {clearest.verdict}"
    return [
        Answer(question, f"{text}. Clearest: {on}, {answers.how_much(clearest)}.", verdict, kind)
    ]


def _beats(rows: Sequence[Compared]) -> str:
    """Rival by rival: a weak one that is beaten everywhere says nothing of a strong one."""
    verdicts: dict[str, list[str]] = {}
    for row in rows:
        verdicts.setdefault(row.variant.look.name, []).append(row.verdict)
    won = "; ".join(
        f"{name} on {of.count(WORSE)} of {len(of)} tasks" for name, of in verdicts.items()
    )
    lost = "; ".join(
        f"{name} on {of.count(BETTER)}" for name, of in verdicts.items() if BETTER in of
    )
    return f"beats {won}. It loses to {lost}" if lost else f"beats {won}"
