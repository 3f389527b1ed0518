"""Judge the claims of the paper by our runs: a verdict for each claim on each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter

from scipy import stats

from pac4sac.base.text import NOTHING, p_text
from pac4sac.paper.cost import COMPARABLE, timed_per_step
from pac4sac.paper.groups import CONTROLS, PaperContext
from pac4sac.paper.numbers import COST, TASKS, TEXTS
from pac4sac.paper.rows import (
    FULL,
    OURS,
    PAPER_SHOTS,
    PRESET,
    SHOOTING_TASK,
    PaperTable,
    departures,
    has_settings,
)
from pac4sac.paper.verdicts import MARGIN_TEXT, NO_DATA, is_same
from pac4sac.report.bias_and_coverage import BIAS, critic_verdict, final_bias
from pac4sac.report.comparison import SIGNIFICANT, UNFINISHED, Compared, Quantity, compare
from pac4sac.report.cost import BASELINE, Machine
from pac4sac.report.provenance import mixtures
from pac4sac.report.tables import Cell, Section, Table, data, in_digits, verdict_cell, words
from pac4sac.report.variants import METRICS, Variant
from pac4sac.runs.statistics import (
    OVERESTIMATES,
    UNDERESTIMATES,
    Difference,
    Estimate,
    fisher,
    holm,
    summarise,
    welch,
)

HOLDS, IN_PART, CONTRADICTED, NOT_SHOWN = "holds", "in part", "contradicted", "not shown"
SHOOTING_RIVALS = {
    "SAC that shoots": {"shots": PAPER_SHOTS},
    "one plain critic that shoots": {"critics": 1, "shots": PAPER_SHOTS},
}
LESS = {"episodes": "fewer episodes until solved", "regret": "less regret"}


@dataclass(frozen=True)
class ClaimTest:
    """What came of one comparison that a claim makes."""

    name: str
    text: str
    speaks_for_it: bool | None = None  # None: cannot be told from chance
    estimate: Estimate | Difference | None = None  # None: runs are under way, or there are none
    p: float | None = None
    runs: str = ""


def verdict_of(tests: Sequence[ClaimTest]) -> str:
    if all(test.estimate is None for test in tests):
        return UNFINISHED
    speaking = [test.speaks_for_it for test in tests]
    if False in speaking:
        return CONTRADICTED
    return HOLDS if all(speaking) else IN_PART if any(speaking) else NOT_SHOWN


@dataclass(frozen=True)
class JudgedClaim:
    study: str  # the kind that asks about it
    claim: str
    on: str
    measure: str
    tests: Sequence[ClaimTest]
    shown_in: str = ""  # the unit of the page; the CSV has units of return

    @property
    def verdict(self) -> str:
        return verdict_of(self.tests)

    @property
    def evidence(self) -> str:
        return f"{self.measure}{self.shown_in}: " + "; ".join(
            f"{f.name} {f.text}" for f in self.tests
        )


def judge_claims(context: PaperContext) -> list[JudgedClaim]:
    return [claim for kind in (_rivals, _biases, _shots, _costs) for claim in kind(context)]


def claims_section(context: PaperContext, judged: Sequence[JudgedClaim]) -> Section | None:
    if not judged:
        return None
    row = attrgetter("claim", "on", "verdict", "measure")
    columns = [
        words("Claim", "claim"),
        words("Verdict", lambda claim: verdict_cell(claim.verdict)),
        words("On", "on"),
        words("Evidence", lambda claim: Cell(claim.evidence)),
        data("claim", "on", "verdict", "measure", get=lambda line: row(line[0])),
        data("compared", get=lambda line: line[1].name),
        data("estimate", "low", "high", get=lambda line: line[1].estimate),
        data("p_holm", "runs", get=lambda line: (line[1].p, line[1].runs)),
    ]
    table = Table(
        "claims", "Verdicts", columns, judged, lambda claim: [(claim, test) for test in claim.tests]
    )
    notes = mixtures([*context.rows.table_1.values(), *context.rows.table_2.values()])
    about = TEXTS["claims"].format(comparable=COMPARABLE, margin=MARGIN_TEXT)
    return Section("claims", "What the paper claims", [table, about, *notes])


def verdict_grid(judged: Sequence[JudgedClaim]) -> Table | None:
    """The claims that are made of tasks, each on all of them."""
    cells = {(claim.claim, claim.on): claim for claim in judged if claim.on in TASKS.values()}

    def cell(task: str, claim: str) -> Cell:
        found = cells.get((claim, task))
        return verdict_cell(found.verdict, found.evidence) if found else Cell("")

    columns = [words("Claim", str)]
    columns += [
        words(task, partial(cell, task))
        for task in TASKS.values()
        if any(on == task for _, on in cells)
    ]
    rows = list(dict.fromkeys(claim for claim, _ in cells))
    return (
        Table("claims-by-task", "What the paper claims, and what our runs say of it", columns, rows)
        if rows
        else None
    )


def _rivals(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge PAC4SAC against the other rows of the paper's tables, then against plain critics that
    shoot. The paper lets no baseline shoot: those that do show what the critic adds to shooting."""
    claims = TEXTS["claims_of_rivals"]
    for table, ours in zip(context.rows.tables, (OURS, FULL), strict=True):
        for (metric, better), task in product(LESS.items(), TASKS):
            own, others = table.variants.get((task, ours)), _other_rows(table, task, ours)
            claim = claims[table.name].format(better)
            yield from _against(table.name, claim, task, own, others, metric)
    for task in TASKS:
        own = context.rows.table_1.get((task, OURS))
        results = context.results(own.task.title) if own else []
        others = {}
        for name, given in SHOOTING_RIVALS.items():
            alike = (v for v in results if has_settings(v, "sac", PRESET, given))
            others[name] = next(alike, None)
        yield from _against(CONTROLS, claims["critics"], task, own, others, "regret")


def _other_rows(table: PaperTable, task: str, ours: str) -> dict[str, Variant | None]:
    """Return the other rows by title; None where there is none of the paper's setting."""
    others: dict[str, Variant | None] = {}
    for row, title in table.titles.items():
        variant = table.variants.get((task, row))
        if row != ours:
            others[title] = variant if variant and not departures(variant, table.free) else None
    return others


def _against(
    study: str,
    claim: str,
    task: str,
    own: Variant | None,
    others: Mapping[str, Variant | None],
    metric: str,
) -> Iterator[JudgedClaim]:
    """Judge a claim against all that it names, None where there is none of the paper's setting.
    Nothing if there is nothing to compare, or our runs are not of the paper's setting."""
    if own is None or departures(own):
        return
    known = [other for other in others.values() if other]
    quantity = Quantity(
        lambda variant: variant.values(metric), CONTRADICTED, HOLDS, partial(_test, metric)
    )
    rows: dict[Variant | None, Compared] = {}
    for row in compare(known, own, quantity):
        rows[row.variant] = row
    if not any(row.difference or row.verdict == UNFINISHED for row in rows.values()):
        return
    tests = [_test_of(name, rows.get(other), own, metric) for name, other in others.items()]
    shown_in = ", thousands" if metric == "regret" else ""
    yield JudgedClaim(study, claim, TASKS[task], f"Δ {METRICS[metric].title}", tests, shown_in)


def _test(metric: str, other: Variant, own: Variant) -> Difference:
    """Compare by Welch's test; by Fisher's of the solved runs where means compare a cap."""
    difference = welch(summarise(own.values(metric)), summarise(other.values(metric)))
    if not _is_by_solved(own, other, metric):
        return difference
    p = fisher((own.solved, len(own.judged)), (other.solved, len(other.judged)))
    return Difference(difference.value, None, None, p)


def _is_by_solved(own: Variant, other: Variant, metric: str) -> bool:
    return metric == "episodes" and not (own.solved and other.solved)


def _test_of(name: str, row: Compared | None, own: Variant, metric: str) -> ClaimTest:
    if row is None or row.difference is None:
        is_open = row is not None and row.verdict == UNFINISHED
        return ClaimTest(name, UNFINISHED if is_open else NO_DATA)
    other = row.variant
    speaks = {HOLDS: True, CONTRADICTED: False}.get(row.verdict)
    text = _difference_text(row, own, metric)
    if speaks is None and _is_equal(own, other, metric):
        text += f", equal within {MARGIN_TEXT}"
    # What a diverged run would have cost is not known, and leaving it out flatters its side.
    diverged = (own if speaks else other).count("diverged")
    if speaks is not None and diverged:
        speaks, text = None, f"{text} ({diverged} diverged left out)"
    runs = f"{len(own.values(metric))} and {len(row.values)}"
    return ClaimTest(name, text, speaks, row.difference, row.p, runs)


def _difference_text(row: Compared, own: Variant, metric: str) -> str:
    other = row.variant
    text = in_digits(row.difference, 1000.0 if metric == "regret" else 1.0, 1)
    if _is_by_solved(own, other, metric):
        text += f", solved {own.solved_text} and {other.solved_text}"
    if row.p is not None:
        text += f" ({p_text(row.p)})"
    return text


def _is_equal(own: Variant, other: Variant, metric: str) -> bool:
    """Return whether the means are shown to be equal; a cap or a diverged run says too little."""
    if _is_by_solved(own, other, metric) or own.count("diverged") or other.count("diverged"):
        return False
    return is_same(summarise(own.values(metric)), summarise(other.values(metric)))


def _biases(context: PaperContext) -> Iterator[JudgedClaim]:
    table_1 = context.rows.table_1
    for task, title in TASKS.items():
        own, sac = table_1.get((task, OURS)), table_1.get((task, "sac"))
        if not own or not sac or departures(own) or departures(sac):
            continue
        if BIAS.measured([own, sac]) and (test := _bias_test(own, sac)):
            claim = "Overestimation is cured with one critic"
            measure = "Δ value bias at the end of training"
            yield JudgedClaim(BIAS.study, claim, title, measure, [test])


def _bias_test(own: Variant, sac: Variant) -> ClaimTest | None:
    """Compare the value bias with SAC's; None if there are too few measurements."""
    quantity = Quantity(lambda variant: BIAS.ends(variant, "bias"), OVERESTIMATES, UNDERESTIMATES)
    theirs, row = compare([sac, own], sac, quantity)
    if row.verdict == UNFINISHED:
        return ClaimTest("SAC", UNFINISHED)
    if min(len(row.values), len(theirs.values)) < 2:
        return None
    # Above SAC's and above zero, or neither: otherwise it cannot be told.
    above = {OVERESTIMATES: True, UNDERESTIMATES: False}.get(row.verdict)
    speaks = not above if above == (critic_verdict(own) == OVERESTIMATES) else None
    p = NOTHING if row.p is None else p_text(row.p)
    bias = in_digits(final_bias(own), digits=1)
    text = f"{in_digits(row.difference, digits=1)} ({p}), PAC4SAC's own bias {bias}"
    runs = f"{len(row.values)} and {len(theirs.values)}"
    return ClaimTest("SAC", text, speaks, row.difference, row.p, runs)


def _shots(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge the trend over all S, and over those that shoot at all."""
    variants = [v for v in context.rows.shooting.values() if not departures(v, ("shots",))]
    for metric, better in LESS.items():
        runs = [(v.shots, value) for v in variants for value in v.values(metric)]
        groups = {"all S": runs, "S > 1": [run for run in runs if run[0] > 1]}
        if tests := _trends(groups):
            claim = f"More shots are better: {better}"
            measure = f"τ of S and {METRICS[metric].title}"
            yield JudgedClaim("shooting", claim, TASKS[SHOOTING_TASK], measure, tests)


def _trends(groups: Mapping[str, Sequence[tuple[int, float]]]) -> list[ClaimTest]:
    """Test whether the second number falls as the first grows, in groups with three or more."""
    known = {
        name: members
        for name, members in groups.items()
        if len({shots for shots, _ in members}) > 2
    }
    trends = [stats.kendalltau(*zip(*members, strict=True)) for members in known.values()]
    p_values = holm([float(trend.pvalue) for trend in trends])
    tests = []
    for (name, members), trend, p in zip(known.items(), trends, p_values, strict=True):
        tau = Estimate(float(trend.statistic))
        text = in_digits(tau, digits=2) + (f" ({p_text(p)})" if p is not None else "")
        speaks = tau.value < 0 if p is not None and p < SIGNIFICANT else None
        tests.append(ClaimTest(name, text, speaks, tau, p, str(len(members))))
    return tests


def _costs(context: PaperContext) -> Iterator[JudgedClaim]:
    printed = COST[OURS].mean / COST[BASELINE].mean
    measure = f"seconds, times those of SAC (paper {printed:.2f})"
    for machine in timed_per_step(context.collection.costs):
        if machine.study == "cost" and (test := _cost_test(machine)):
            claim = "PAC4SAC costs about as much as SAC"
            yield JudgedClaim("cost", claim, machine.title, measure, [test])


def _cost_test(machine: Machine) -> ClaimTest | None:
    ratio = machine.relative(OURS)
    if ratio is None:
        return None
    low, high = ratio.low, ratio.high
    speaks = None
    if low is not None and high is not None and not low <= COMPARABLE < high:
        speaks = high <= COMPARABLE
    runs = str(len(machine.seconds[OURS]))
    return ClaimTest("PAC4SAC", in_digits(ratio, digits=2), speaks, ratio, None, runs)
