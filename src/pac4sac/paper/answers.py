"""Answer what each study of the paper asks, for the first screen of its report."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pac4sac.paper.calibration import calibration_answer
from pac4sac.paper.claims import (
    CONTRADICTED,
    HOLDS,
    IN_PART,
    NOT_SHOWN,
    ClaimTest,
    JudgedClaim,
    verdict_of,
)
from pac4sac.paper.cost import SOLVING, CostUntilSolved
from pac4sac.paper.groups import BEST, BEYOND, CONTROLS, PUBLISHED, PaperContext
from pac4sac.paper.study_sections import compare_study
from pac4sac.report.answers import how_much
from pac4sac.report.comparison import BETTER, WORSE, Compared
from pac4sac.report.search import chosen_answer, chosen_by
from pac4sac.report.tables import Answer
from pac4sac.report.uncertainty import uncertainty_answer
from pac4sac.runs.collection import FoundStudy
from pac4sac.studies.shipped import shipped_study

# In the order of their answers: these ask about claims of the paper.
CLAIMED = ("table-1", "table-2", "controls", "shooting", "overestimation", "cost")
SECTIONS = {"overestimation": "bias"}  # if it is not called like the kind
# What the comparisons speak for, if it is not what the study asks.
SUBJECTS = {"controls": "a gain by the critic itself", "overestimation": "a cure"}
UNDECIDED = "No complete run decides it yet."


def study_answers(
    context: PaperContext, judged: Sequence[JudgedClaim], beside: Mapping[str, str]
) -> list[Answer]:
    """Return the answers of all studies; those that chose a setting only if nothing else was asked.

    `beside` has sentences on our numbers beside the paper's tables and published ones, by kind.
    """
    studies = list({study.name: study for study in context.collection.studies}.values())
    answers = [
        *_claimed_answers(context, studies, judged, beside),
        *_measured_answers(context, studies),
        *_comparison_answers(context, studies),
        *(
            Answer(_question(study), beside[PUBLISHED], section=PUBLISHED)
            for study in _of_kind(studies, PUBLISHED)
        ),
    ]
    return answers or list(_chosen_answers(context, studies))


def _of_kind(studies: Sequence[FoundStudy], kind: str) -> list[FoundStudy]:
    return [study for study in studies if study.kind == kind and study.name != SOLVING]


def _question(study: FoundStudy) -> str:
    return study.question or study.title


def _measured_answers(context: PaperContext, studies: Sequence[FoundStudy]) -> Iterator[Answer]:
    """Answer what a solved task costs, and whether critics know how far they err."""
    for study in studies:
        if study.name == SOLVING:
            soonest = CostUntilSolved(context.collection.costs, context.rows.table_1).answer()
            yield Answer(_question(study), soonest or UNDECIDED, section="cost")
    for study in _of_kind(studies, "uncertainty")[:1]:
        yield Answer(_question(study), uncertainty_answer(context), section="uncertainty")


def _chosen_answers(context: PaperContext, studies: Sequence[FoundStudy]) -> Iterator[Answer]:
    for study in _of_kind(studies, "calibration"):
        yield Answer(_question(study), calibration_answer(context, study), section=study.kind)
    for study in _of_kind(studies, "search"):
        yield Answer(_question(study), chosen_answer(chosen_by(context, study)), section=study.kind)


# --- claims of the paper


def _claimed_answers(
    context: PaperContext,
    studies: Sequence[FoundStudy],
    judged: Sequence[JudgedClaim],
    beside: Mapping[str, str],
) -> Iterator[Answer]:
    for kind in CLAIMED:
        asking = _of_kind(studies, kind)
        claims = [claim for claim in judged if claim.study == kind]
        if claims:
            question = _question(asking[0]) if asking else str(shipped_study(kind)["question"])
            answer = _answer_of_claims(question, claims, kind)
            further = _better_controls(context) if kind == CONTROLS else beside.get(kind, "")
            yield replace(answer, text=f"{answer.text} {further}".strip())
        elif asking:
            yield Answer(_question(asking[0]), UNDECIDED)


def _answer_of_claims(question: str, claims: Sequence[JudgedClaim], kind: str) -> Answer:
    """Tell how many comparisons speak for it, and the clearest of those that make the verdict."""
    section = SECTIONS.get(kind, kind)
    tests = [test for claim in claims for test in claim.tests]
    verdict = verdict_of(tests)
    clearest = _clearest(claims, verdict)
    if clearest is None:
        return Answer(question, "Runs are under way.", verdict, section)
    claim, test = clearest
    number = f"{claim.measure}{claim.shown_in}, {claim.on}: {test.name} {test.text}."
    if len(tests) == 1:
        return Answer(question, number, verdict, section)
    counts = Counter(test.speaks_for_it for test in tests)
    text = f"{counts[True]} of {len(tests)} comparisons speak for {SUBJECTS.get(kind, 'it')}"
    text += f", {counts[False]} against it" if counts[False] else ""
    return Answer(question, f"{text}. Clearest: {number}", verdict, section)


def _clearest(claims: Sequence[JudgedClaim], verdict: str) -> tuple[JudgedClaim, ClaimTest] | None:
    """Return the test with the least p-value among those that make the verdict."""
    speaks = {HOLDS: True, IN_PART: True, CONTRADICTED: False}.get(verdict)
    deciding = []
    for claim in claims:
        for test in claim.tests:
            if test.estimate and (speaks is None or test.speaks_for_it is speaks):
                deciding.append((claim, test))
    return min(deciding, key=lambda both: both[1].p or 0.0, default=None)


def _better_controls(context: PaperContext) -> str:
    """Tell which controls are better than what they are to explain."""
    rows = [row for title in context.variants for row in compare_study(context, CONTROLS, title)]
    better = [
        f"{row.variant.style.name} on {row.variant.task.title}"
        for row in rows
        if row.verdict == BETTER
    ]
    return f"Better than {rows[0].variant.style.name}: {', '.join(better)}." if better else ""


# --- what the paper does not claim


def _comparison_answers(context: PaperContext, studies: Sequence[FoundStudy]) -> Iterator[Answer]:
    for kind in (BEYOND, BEST):
        if asking := _of_kind(studies, kind):
            rows = [
                row for title in context.variants for row in compare_study(context, kind, title)
            ]
            yield _answer_of_comparisons(_question(asking[0]), rows, kind)


def _answer_of_comparisons(question: str, compared: Sequence[Compared], kind: str) -> Answer:
    """The preset should beat the others, all else of a study what it is compared with."""
    rows = [row for row in compared if row.difference]
    if not rows:
        return Answer(question, UNDECIDED, section=kind)
    hoped, feared = (WORSE, BETTER) if kind == BEST else (BETTER, WORSE)
    counts = Counter(row.verdict for row in rows)
    baseline = rows[0].baseline.style.name if rows[0].baseline else ""
    text = (
        f"Of {len(rows)} comparisons with {baseline} {counts[BETTER]} are better and "
        f"{counts[WORSE]} worse"
    )
    if kind == BEST:
        text = f"{baseline}, {_wins_and_losses(rows)}"
    clearest = min(
        rows, key=lambda row: (row.verdict != hoped, row.verdict != feared, row.p or 0.0)
    )
    on = f"{clearest.variant.style.name} on {clearest.variant.task.title} is {clearest.verdict}"
    verdict = IN_PART if counts[hoped] else NOT_SHOWN
    if counts[hoped] == len(rows):
        verdict = HOLDS
    return Answer(question, f"{text}. Clearest: {on}, {how_much(clearest)}.", verdict, kind)


def _wins_and_losses(rows: Sequence[Compared]) -> str:
    """Tell against each on how many tasks: a win over a weak one says nothing of a strong one."""
    verdicts: dict[str, list[str]] = {}
    for row in rows:
        verdicts.setdefault(row.variant.style.name, []).append(row.verdict)
    won = "; ".join(
        f"{name} on {of.count(WORSE)} of {len(of)} tasks" for name, of in verdicts.items()
    )
    lost = "; ".join(
        f"{name} on {of.count(BETTER)}" for name, of in verdicts.items() if BETTER in of
    )
    return f"beats {won}. It loses to {lost}" if lost else f"beats {won}"
