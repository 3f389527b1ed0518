"""What the paper claims, and whether our runs bear it out: a verdict for each claim on each
task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter

from scipy import stats

from pac4sac.base.text import NOTHING, p_text
from pac4sac.paper.cost import COMPARABLE, REFERENCE, machines
from pac4sac.paper.families import (
    CONTROLS,
    FULL,
    PAPER_SHOTS,
    SHOOTING_TASK,
    PaperContext,
    departures,
)
from pac4sac.paper.numbers import COST, TASKS, TEXTS
from pac4sac.paper.verdicts import MARGIN_TEXT, NO_DATA, is_same
from pac4sac.report.bias_and_coverage import BIAS, critic_verdict, final_bias
from pac4sac.report.comparison import SIGNIFICANT, UNFINISHED, Compared, Quantity, compare
from pac4sac.report.sections import mixtures
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
OURS = "pac4sac"
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
    """PAC4SAC against the other rows of the paper's tables, then against plain critics that shoot.
    The paper lets none of its rivals shoot: those that do tell what the critic adds to shooting."""
    claims = TEXTS["claims_of_rivals"]
    for table, row_of_ours in zip(context.rows.tables, (OURS, FULL), strict=True):
        for (metric, better), task in product(LESS.items(), TASKS):
            rivals = {
                name: table.variants.get((task, row))
                for row, name in table.titles.items()
                if row != row_of_ours
            }
            others = {
                name: v if v and not departures(v, table.free) else None
                for name, v in rivals.items()
            }
            own = table.variants.get((task, row_of_ours))
            yield from _against(
                table.name, claims[table.name].format(better), task, own, others, metric
            )
    shooting = {"SAC that shoots": {"shots": PAPER_SHOTS}}
    shooting["one plain critic that shoots"] = {"shots": PAPER_SHOTS, "critics": 1}
    for task in TASKS:
        own = context.rows.table_1.get((task, OURS))
        plain = [v for v in context.results(own.task.title) if v.algo == "sac"] if own else []
        others = {
            name: next((v for v in plain if v.departures == how), None)
            for name, how in shooting.items()
        }
        yield from _against(CONTROLS, claims["critics"], task, own, others, "regret")


def _against(
    study: str,
    claim: str,
    task: str,
    own: Variant | None,
    others: Mapping[str, Variant | None],
    metric: str,
) -> Iterator[JudgedClaim]:
    """All that the claim names; None where there is none of the paper's setting. Nothing where
    there is nothing to compare, or our runs are not of the paper's setting."""
    if own is None or departures(own):
        return

    def test(other: Variant, own: Variant) -> Difference:
        difference = welch(summarise(own.values(metric)), summarise(other.values(metric)))
        if not _is_by_solved(own, other, metric):
            return difference
        p = fisher((own.solved, len(own.judged)), (other.solved, len(other.judged)))
        return Difference(difference.value, None, None, p)

    quantity = Quantity(lambda variant: variant.values(metric), CONTRADICTED, HOLDS, test)
    rows = {
        row.variant: row
        for row in compare([other for other in others.values() if other], own, quantity)
    }
    if any(row.difference or row.verdict == UNFINISHED for row in rows.values()):
        tests = [
            _test_of(name, rows[v], own, metric) if v else ClaimTest(name, NO_DATA)
            for name, v in others.items()
        ]
        shown_in = ", thousands" if metric == "regret" else ""
        yield JudgedClaim(study, claim, TASKS[task], f"Δ {METRICS[metric].title}", tests, shown_in)


def _is_by_solved(own: Variant, other: Variant, metric: str) -> bool:
    return metric == "episodes" and not (own.solved and other.solved)


def _test_of(name: str, row: Compared, own: Variant, metric: str) -> ClaimTest:
    other = row.variant
    if row.difference is None:
        return ClaimTest(name, UNFINISHED if row.verdict == UNFINISHED else NO_DATA)
    text = in_digits(row.difference, 1000.0 if metric == "regret" else 1.0, 1)
    text += (
        f", solved {own.solved_text} and {other.solved_text}"
        if _is_by_solved(own, other, metric)
        else ""
    )
    text += "" if row.p is None else f" ({p_text(row.p)})"
    speaks = {HOLDS: True, CONTRADICTED: False}.get(row.verdict)
    # Of a cap and of runs that diverged a mean says too little.
    by_means = not _is_by_solved(own, other, metric) and not own.count("diverged") + other.count(
        "diverged"
    )
    if (
        speaks is None
        and by_means
        and is_same(summarise(own.values(metric)), summarise(row.values))
    ):
        text += f", equal within {MARGIN_TEXT}"
    # What a diverged run would have cost is not known, and leaving it out flatters its side.
    if speaks is not None and (diverged := (own if speaks else other).count("diverged")):
        speaks, text = None, f"{text} ({diverged} diverged left out)"
    runs = f"{len(own.values(metric))} and {len(row.values)}"
    return ClaimTest(name, text, speaks, row.difference, row.p, runs)


def _biases(context: PaperContext) -> Iterator[JudgedClaim]:
    quantity = Quantity(lambda variant: BIAS.ends(variant, "bias"), OVERESTIMATES, UNDERESTIMATES)
    for task, title in TASKS.items():
        own, sac = context.rows.table_1.get((task, OURS)), context.rows.table_1.get((task, "sac"))
        if (
            not own
            or not sac
            or departures(own)
            or departures(sac)
            or not BIAS.measured([own, sac])
        ):
            continue
        theirs, row = compare([sac, own], sac, quantity)
        test = ClaimTest("SAC", UNFINISHED)
        if row.verdict != UNFINISHED:
            if min(len(row.values), len(theirs.values)) < 2:
                continue
            # Above SAC's and above zero, or neither: otherwise it cannot be told.
            above = {OVERESTIMATES: True, UNDERESTIMATES: False}.get(row.verdict)
            speaks = not above if above == (critic_verdict(own) == OVERESTIMATES) else None
            difference, bias = (
                in_digits(row.difference, digits=1),
                in_digits(final_bias(own), digits=1),
            )
            text = (
                f"{difference} ({NOTHING if row.p is None else p_text(row.p)}), PAC4SAC's own "
                f"bias {bias}"
            )
            runs = f"{len(row.values)} and {len(theirs.values)}"
            test = ClaimTest("SAC", text, speaks, row.difference, row.p, runs)
        measure = "Δ value bias at the end of training"
        yield JudgedClaim(
            BIAS.study, "Overestimation is cured with one critic", title, measure, [test]
        )


def _shots(context: PaperContext) -> Iterator[JudgedClaim]:
    """Over all S, and over those that shoot at all."""
    variants = {
        shots: v for shots, v in context.rows.shooting.items() if not departures(v, ("shots",))
    }
    for metric, better in LESS.items():
        runs = [
            (shots, value)
            for shots, variant in variants.items()
            for value in variant.values(metric)
        ]
        groups = {"all S": runs, "S > 1": [run for run in runs if run[0] > 1]}
        groups = {
            name: members
            for name, members in groups.items()
            if len({shots for shots, _ in members}) > 2
        }
        trends = [stats.kendalltau(*zip(*members, strict=True)) for members in groups.values()]
        tests = []
        for name, trend, p in zip(
            groups, trends, holm([float(trend.pvalue) for trend in trends]), strict=True
        ):
            tau = Estimate(float(trend.statistic))
            text = in_digits(tau, digits=2) + (f" ({p_text(p)})" if p is not None else "")
            speaks = tau.value < 0 if p is not None and p < SIGNIFICANT else None
            tests.append(ClaimTest(name, text, speaks, tau, p, str(len(groups[name]))))
        if tests:
            measure = f"τ of S and {METRICS[metric].title}"
            yield JudgedClaim(
                "shooting", f"More shots are better: {better}", TASKS[SHOOTING_TASK], measure, tests
            )


def _costs(context: PaperContext) -> Iterator[JudgedClaim]:
    for machine in machines(context.collection.costs):
        ratio = machine.relative(OURS)
        if ratio is None or machine.study != "cost":
            continue
        low, high = ratio.low, ratio.high
        speaks = (
            None if low is None or high is None or low <= COMPARABLE < high else high <= COMPARABLE
        )
        test = ClaimTest(
            "PAC4SAC",
            in_digits(ratio, digits=2),
            speaks,
            ratio,
            None,
            str(len(machine.seconds[OURS])),
        )
        printed = COST[OURS].mean / COST[REFERENCE].mean
        measure = f"seconds, times those of SAC (paper {printed:.2f})"
        yield JudgedClaim(
            "cost", "PAC4SAC costs about as much as SAC", machine.title, measure, [test]
        )
