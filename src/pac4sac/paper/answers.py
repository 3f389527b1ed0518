"""Answers to the questions of the paper's studies, for the first screen of its report."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

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
from pac4sac.paper.study_sections import compare_study_on_all_tasks
from pac4sac.report.answers import effect_sentence
from pac4sac.report.comparison import BETTER, WORSE, Compared
from pac4sac.report.search import chosen_answer, chosen_by, studies_of_kind
from pac4sac.report.sentences import listed
from pac4sac.report.tables import Answer
from pac4sac.report.uncertainty import uncertainty_answer
from pac4sac.runs.collection import FoundStudy
from pac4sac.studies.shipped import shipped_study

# Kinds of studies that ask about claims of the paper, in the order of their answers.
CLAIMED = ("table-1", "table-2", "controls", "shooting", "overestimation", "cost")
SECTIONS = {"overestimation": "bias"}  # kind of study -> section, if their names differ
# What the comparisons support, by kind, if it is not a claim of the paper.
SUBJECTS = {"controls": "the hypothesis that the gain comes from the critic itself"}
DELTA = "Δ "  # prefix of measures that are differences
UNDECIDED = "No complete run answers this question yet."


def study_answers(
    context: PaperContext, judged: Sequence[JudgedClaim], comparisons: Mapping[str, str]
) -> list[Answer]:
    """Return the answers of all studies; studies that chose a setting answer only if no other study
    does.

    `comparisons` maps a kind of study to a sentence that compares our numbers with published ones.
    """
    answers = [
        *_claimed_answers(context, judged, comparisons),
        *_cost_answers(context),
        *_uncertainty_answers(context),
        *_comparison_answers(context),
        *_published_answers(context, comparisons),
    ]
    return answers or [*_calibration_answers(context), *_search_answers(context)]


def _studies(context: PaperContext, kind: str) -> list[FoundStudy]:
    return [study for study in studies_of_kind(context, kind) if study.name != SOLVING]


def _question(study: FoundStudy) -> str:
    return study.question or study.title


def _cost_answers(context: PaperContext) -> Iterator[Answer]:
    """Answer which algorithm needs the least time to solve each task."""
    by_name = {study.name: study for study in context.collection.studies}
    if study := by_name.get(SOLVING):
        soonest = CostUntilSolved(context.collection.costs, context.rows.table_1).answer()
        yield Answer(_question(study), soonest or UNDECIDED, section="cost")


def _uncertainty_answers(context: PaperContext) -> Iterator[Answer]:
    """Answer whether critics know the size of their errors."""
    for study in _studies(context, "uncertainty")[:1]:
        yield Answer(_question(study), uncertainty_answer(context), section="uncertainty")


def _published_answers(context: PaperContext, comparisons: Mapping[str, str]) -> Iterator[Answer]:
    """Answer whether our returns match published ones."""
    for study in _studies(context, PUBLISHED):
        yield Answer(_question(study), comparisons[PUBLISHED], section=PUBLISHED)


def _calibration_answers(context: PaperContext) -> Iterator[Answer]:
    """Answer which setting is closest to the paper's numbers."""
    for study in _studies(context, "calibration"):
        yield Answer(_question(study), calibration_answer(context, study), section=study.kind)


def _search_answers(context: PaperContext) -> Iterator[Answer]:
    """Answer which setting is best."""
    for study in _studies(context, "search"):
        yield Answer(_question(study), chosen_answer(chosen_by(context, study)), section=study.kind)


# --- claims of the paper


def _claimed_answers(
    context: PaperContext, judged: Sequence[JudgedClaim], comparisons: Mapping[str, str]
) -> Iterator[Answer]:
    """Answer each question about claims that a study asks or that runs can judge."""
    for kind in CLAIMED:
        asking = _studies(context, kind)
        question = _question(asking[0]) if asking else str(shipped_study(kind)["question"])
        if claims := [claim for claim in judged if claim.study == kind]:
            answer = _answer_of_claims(question, claims, kind)
            further = _better_controls(context) if kind == CONTROLS else comparisons.get(kind, "")
            yield replace(answer, text=f"{answer.text} {further}".strip())
        elif asking:
            yield Answer(question, UNDECIDED)


def _answer_of_claims(question: str, claims: Sequence[JudgedClaim], kind: str) -> Answer:
    """Return the number of comparisons that support the claims, and the clearest one behind the
    verdict."""
    tests = [test for claim in claims for test in claim.tests]
    verdict = verdict_of(tests)
    answer = partial(Answer, question, verdict=verdict, section=SECTIONS.get(kind, kind))
    clearest = _clearest_test(claims, verdict)
    if clearest is None:
        return answer("Runs are in progress.")
    claim, test = clearest
    is_difference = claim.measure.startswith(DELTA)
    measure = f"{claim.measure.removeprefix(DELTA)} on {claim.on}{claim.shown_in}"
    number = (
        f"the difference in {measure}: PAC4SAC − {test.name} = {test.text}."
        if is_difference
        else f"{measure} for {test.name}: {test.text}."
    )
    if len(tests) == 1:
        return answer(f"The result is {number}")
    is_shown = verdict in (HOLDS, IN_PART, CONTRADICTED)
    clearest_is = "The clearest result is" if is_shown else "The lowest p-value belongs to"
    return answer(f"{_support(tests, kind)} {clearest_is} {number}")


def _support(tests: Sequence[ClaimTest], kind: str) -> str:
    """Return a sentence with the numbers of tests that support and contradict the claims."""
    counts = Counter(test.speaks_for_it for test in tests)
    verb = "support" if counts[True] > 1 else "supports"
    claim = SUBJECTS.get(kind, "the paper's claim")
    text = f"Of {len(tests)} comparisons, {counts[True] or 'none'} {verb} {claim}"
    if counts[False]:
        text += f" and {counts[False]} {'contradicts' if counts[False] == 1 else 'contradict'} it"
    return f"{text}."


def _clearest_test(
    claims: Sequence[JudgedClaim], verdict: str
) -> tuple[JudgedClaim, ClaimTest] | None:
    """Return the test with the smallest p-value among those that support the verdict."""
    speaks = {HOLDS: True, IN_PART: True, CONTRADICTED: False}.get(verdict)

    def rank(found: tuple[JudgedClaim, ClaimTest]) -> tuple[bool, float]:
        _, test = found
        return test.speaks_for_it is not speaks, test.p or 0.0

    measured = [(claim, test) for claim in claims for test in claim.tests if test.estimate]
    return min(measured, key=rank, default=None)


def _better_controls(context: PaperContext) -> str:
    """Return the controls that are better than the baseline whose gain they should explain."""
    rows = compare_study_on_all_tasks(context, CONTROLS)
    better = [_name_on_task(row) for row in rows if row.verdict == BETTER]
    if not better:
        return ""
    are = "control is" if len(better) == 1 else "controls are"
    than = rows[0].variant.style.name
    return f"The following {are} better than {than}: {listed(better)}."


def _name_on_task(row: Compared) -> str:
    return f"{row.variant.style.name} on {row.variant.task.title}"


# --- comparisons without a claim of the paper


def _comparison_answers(context: PaperContext) -> Iterator[Answer]:
    """Answer the studies of changes beyond the paper and of the preset `best`."""
    for kind in (BEYOND, BEST):
        if asking := _studies(context, kind):
            compared = compare_study_on_all_tasks(context, kind)
            yield _answer_of_comparisons(_question(asking[0]), compared, kind)


def _answer_of_comparisons(question: str, compared: Sequence[Compared], kind: str) -> Answer:
    """Return a summary of a study's verdicts and its clearest comparison."""
    rows = [row for row in compared if row.difference]
    if not rows:
        return Answer(question, UNDECIDED, section=kind)
    # The preset is the baseline of its study, so verdicts "worse" of the others favour it.
    hoped, feared = (WORSE, BETTER) if kind == BEST else (BETTER, WORSE)
    ranks = {hoped: 0, feared: 1}
    clearest = min(rows, key=lambda row: (ranks.get(row.verdict, 2), row.p or 0.0))
    text = _wins_and_losses(rows) if kind == BEST else _better_and_worse(rows)
    example = effect_sentence(clearest)
    verdict = _verdict_on_comparisons([row.verdict == hoped for row in rows])
    return Answer(question, f"{text}. The clearest result: {example}", verdict, kind)


def _verdict_on_comparisons(as_hoped: Sequence[bool]) -> str:
    if all(as_hoped):
        return HOLDS
    return IN_PART if any(as_hoped) else NOT_SHOWN


def _better_and_worse(rows: Sequence[Compared]) -> str:
    """Return a sentence with the numbers of variants that are better and worse than the
    baseline."""
    counts = Counter(row.verdict for row in rows)
    return (
        f"Of {len(rows)} comparisons with {_baseline_name(rows)}, the other variant is better in "
        f"{counts[BETTER] or 'none'} and worse in {counts[WORSE] or 'none'}"
    )


def _wins_and_losses(rows: Sequence[Compared]) -> str:
    """Return, for each other variant, the number of tasks on which the baseline is better or
    worse."""
    verdicts: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        verdicts[row.variant.style.name].append(row.verdict)
    won = list[str]()
    for name, on_tasks in verdicts.items():
        subject = "It" if won else _baseline_name(rows)
        text = (
            f"{subject} is better than {name} on {on_tasks.count(WORSE)} of {len(on_tasks)} tasks"
        )
        won.append(text + (f" and worse on {on_tasks.count(BETTER)}" if BETTER in on_tasks else ""))
    return ". ".join(won)


def _baseline_name(rows: Sequence[Compared]) -> str:
    baseline = rows[0].baseline
    return baseline.style.name if baseline else ""
