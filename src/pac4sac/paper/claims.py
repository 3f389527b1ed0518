"""What the paper claims, and whether our runs bear it out: a verdict for each claim on each task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import stats

from pac4sac.base.text import NOTHING, p_text
from pac4sac.paper.numbers import COST
from pac4sac.paper.paper_rows import ALGORITHMS, PAPER_SHOTS, SHOOTING_TASK, TASKS, TERMS, PaperRows
from pac4sac.paper.table_sections import TERM_TITLES, departures
from pac4sac.paper.verdicts import NO_DATA, SIGNIFICANT, UNFINISHED
from pac4sac.report.bias_section import BIAS, final_bias
from pac4sac.report.computing import mixtures
from pac4sac.report.cost_section import REFERENCE, machines
from pac4sac.report.tables import Cell, Column, Section, Table, with_interval
from pac4sac.report.variants import METRICS, Group
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, fisher, holm, summarise, welch

HOLDS, IN_PART, CONTRADICTED, NOT_SHOWN = "holds", "in part", "contradicted", "not shown"
COMPARABLE = 1.25  # times the cost of SAC, at most
OURS, FULL = "pac4sac", TERMS[True, True]
BETTER = {"episodes": "fewer episodes until solved", "regret": "less regret"}
INTRO = (
    "A claim holds where every comparison comes out its way, in part where some do; it is contradicted where one comes "
    "out the other way, and not shown where none can be told from chance, which is no proof of the contrary. A rival "
    "of which there is no data keeps a claim from holding in full. Differences are PAC4SAC's minus the other's with "
    "Welch's 95 % interval, so that less than zero speaks for the claim. Intervals are not corrected; the p-values "
    "beside them are, and verdicts follow those, at p < 0.05: each row is a family of tests of its own, corrected "
    "(Holm) for the comparisons named in it, and for no others. Where no run of one side was solved, its episodes are "
    "all E_max, a cap without spread: there the numbers of solved runs are compared by Fisher's exact test, and there "
    "is no interval. Trends over S are Kendall's τ, over all runs. That overestimation is cured is contradicted where "
    "PAC4SAC's bias lies above zero and above SAC's, and holds where it lies below SAC's and not above zero. Cost "
    f"counts as comparable where the interval of the ratio to SAC stays below {COMPARABLE}."
)


@dataclass(frozen=True)
class Evidence:
    """One comparison that a claim makes."""

    name: str
    text: str
    speaks_for_it: bool | None  # None: cannot be told from chance
    estimate: Estimate | None  # None: runs are under way, or there are none
    p: float | None
    runs: str


@dataclass(frozen=True)
class Judged:
    claim: str
    on: str
    measure: str
    evidence: Sequence[Evidence]
    shown_in: str = ""  # the unit of the page; the CSV has units of return

    @property
    def verdict(self) -> str:
        told = [e.speaks_for_it for e in self.evidence]
        if all(e.estimate is None for e in self.evidence):
            return UNFINISHED
        if False in told:
            return CONTRADICTED
        return HOLDS if all(told) else IN_PART if any(told) else NOT_SHOWN


def claims_section(
    groups: Mapping[str, Sequence[Group]], rows: PaperRows, costs: Sequence[FoundCost]
) -> Section | None:
    judged = [*_rivals(rows), *_terms(rows), *_critics(groups, rows), *_biases(rows), *_shots(rows), *_costs(costs)]
    if not judged:
        return None
    columns = [Column(title, numeric=False) for title in ("Claim", "On", "Verdict", "Evidence")]
    body = [
        [
            Cell(j.claim, j.claim),
            Cell(j.on, j.on),
            Cell("", j.verdict, verdict=j.verdict),
            Cell(f"{j.measure}{j.shown_in}: " + "; ".join(f"{e.name} {e.text}" for e in j.evidence)),
        ]
        for j in judged
    ]
    records = [
        {"claim": j.claim, "on": j.on, "verdict": j.verdict, "measure": j.measure, "compared": e.name,
         "estimate": e.estimate and e.estimate.value, "low": e.estimate and e.estimate.low,
         "high": e.estimate and e.estimate.high, "p_holm": e.p, "runs": e.runs}
        for j in judged for e in j.evidence
    ]  # fmt: skip
    table = Table("claims", "Verdicts", columns, body, records)
    notes = mixtures([*rows.table_1.values(), *rows.table_2.values()])
    return Section("claims", "What the paper claims", [INTRO, table, *notes])


def _rivals(rows: PaperRows) -> list[Judged]:
    judged = []
    for metric, better in BETTER.items():
        for task, title in TASKS.items():
            others = _others(rows.table_1, task, ALGORITHMS, OURS, ())
            claim = f"PAC4SAC: {better} than its rivals"
            judged += _against(claim, title, rows.table_1.get((task, OURS)), others, metric)
    return judged


def _terms(rows: PaperRows) -> list[Judged]:
    judged = []
    for metric, better in BETTER.items():
        for task, title in TASKS.items():
            others = _others(rows.table_2, task, TERM_TITLES, FULL, ("xi", "conservative"))
            claim = f"All three loss terms are needed: {better} than with fewer"
            judged += _against(claim, title, rows.table_2.get((task, FULL)), others, metric)
    return judged


def _others(
    found: Mapping[tuple[str, str], Group], task: str, titles: Mapping[str, str], own: str, free: Sequence[str]
) -> dict[str, Group | None]:
    """All that the claim names; None where there is none of the paper's setting."""
    rivals = {title: found.get((task, row)) for row, title in titles.items() if row != own}
    return {title: group if group and not departures(group, free) else None for title, group in rivals.items()}


def _critics(groups: Mapping[str, Sequence[Group]], rows: PaperRows) -> list[Judged]:
    """The paper lets none of its rivals shoot: those that do tell what the critic adds to shooting."""
    judged = []
    named = {"SAC that shoots": {}, "one plain critic that shoots": {"critics": 1}}
    for task, title in TASKS.items():
        own = rows.table_1.get((task, OURS))
        beside = [group for members in groups.values() for group in members if own and group.task is own.task]
        plain = [group for group in beside if group.algo == "sac" and group.is_result]
        others = {
            name: next((group for group in plain if group.departures == {"shots": PAPER_SHOTS, **settings}), None)
            for name, settings in named.items()
        }
        claim = "The critic makes the gain: less regret than plain critics that shoot as much"
        judged += _against(claim, title, own, others, "regret")
    return judged


def _against(claim: str, on: str, own: Group | None, others: Mapping[str, Group | None], metric: str) -> list[Judged]:
    """Nothing where there is nothing to compare, or the runs are not of the paper's setting."""
    if own is None or departures(own, ()):
        return []
    present = {name: other for name, other in others.items() if other}
    rivals = {name: other for name, other in present.items() if own.values(metric) and other.values(metric)}
    waiting = {name for name, other in present.items() if own.under_way or other.under_way}
    if not rivals and not waiting:
        return []
    compared = [_compare(name, own, other, metric) for name, other in rivals.items()]
    corrected = dict(zip(rivals, holm([e.p for e in compared]), strict=True))
    found = {e.name: _decide(e, corrected[e.name], own, rivals[e.name]) for e in compared}
    evidence = [
        found.get(name) or Evidence(name, UNFINISHED if name in waiting else NO_DATA, None, None, None, "")
        for name in others
    ]
    shown_in = ", thousands" if metric == "regret" else ""
    return [Judged(claim, on, f"Δ {METRICS[metric].title}", evidence, shown_in)]


def _compare(name: str, own: Group, other: Group, metric: str) -> Evidence:
    """With a p-value that is not corrected yet."""
    values = own.values(metric), other.values(metric)
    difference = welch(*map(summarise, values))
    runs = " and ".join(str(len(found)) for found in values)
    if metric == "episodes" and not (own.solved and other.solved):
        p = fisher((own.solved, len(own.judged)), (other.solved, len(other.judged)))
        told = (
            f"{with_interval(Estimate(difference.value), digits=1)}, solved {own.solved_text} and {other.solved_text}"
        )
        return Evidence(name, told, None, Estimate(difference.value), p, runs)
    estimate = Estimate(difference.value, difference.low, difference.high)
    told = with_interval(estimate, 1000.0 if metric == "regret" else 1.0, 1)
    return Evidence(name, told, None, estimate, difference.p, runs)


def _decide(compared: Evidence, p: float | None, own: Group, other: Group) -> Evidence:
    assert compared.estimate is not None
    told = compared.text + ("" if p is None else f" ({p_text(p)})")
    if p is None or p >= SIGNIFICANT:
        return replace(compared, text=told, p=p)
    speaks = compared.estimate.value < 0
    # What a diverged run would have cost is not known, and leaving it out flatters its side.
    if diverged := (own if speaks else other).count("diverged"):
        return replace(compared, text=f"{told} ({diverged} diverged left out)", p=p)
    return replace(compared, text=told, p=p, speaks_for_it=speaks)


def _biases(rows: PaperRows) -> list[Judged]:
    judged = []
    for task, title in TASKS.items():
        own, sac = rows.table_1.get((task, OURS)), rows.table_1.get((task, "sac"))
        if not own or not sac or departures(own, ()) or departures(sac, ()) or not (BIAS.measured([own, sac])):
            continue
        ends = [[row["bias"] for row in BIAS.last_rows(group)] for group in (own, sac)]
        if own.under_way or sac.under_way:
            evidence = Evidence("SAC", UNFINISHED, None, None, None, "")
        elif all(len(found) > 1 for found in ends):
            difference, bias = welch(*map(summarise, ends)), final_bias(own)
            estimate = Estimate(difference.value, difference.low, difference.high)
            above_zero = bool(bias and bias.low is not None and bias.low > 0)
            above_sac = difference.value > 0 if difference.p is not None and difference.p < SIGNIFICANT else None
            speaks = not above_sac if above_sac is not None and above_sac == above_zero else None
            p = NOTHING if difference.p is None else p_text(difference.p)
            told = f"{with_interval(estimate, digits=1)} ({p}), PAC4SAC's own bias {with_interval(bias, digits=1)}"
            evidence = Evidence("SAC", told, speaks, estimate, difference.p, " and ".join(str(len(e)) for e in ends))
        else:
            continue
        measure = "Δ value bias at the end of training"
        judged.append(Judged("Overestimation is cured with one critic", title, measure, [evidence]))
    return judged


def _shots(rows: PaperRows) -> list[Judged]:
    """Over all S, and over those that shoot at all."""
    found = {shots: group for shots, group in rows.shooting.items() if not departures(group, ("shots",))}
    judged = []
    for metric, better in BETTER.items():
        trends = []
        for name, least in (("all S", 1), ("S > 1", 2)):
            runs = [(shots, v) for shots, group in found.items() if shots >= least for v in group.values(metric)]
            if len({shots for shots, _ in runs}) > 2:
                tau = stats.kendalltau(*zip(*runs, strict=True))
                trends.append((name, float(tau.statistic), float(tau.pvalue), str(len(runs))))
        corrected = holm([p for _, _, p, _ in trends])
        evidence = [
            Evidence(name, f"{tau:.2f}".replace("-", "−") + (f" ({p_text(p)})" if p is not None else ""),
                     tau < 0 if p is not None and p < SIGNIFICANT else None, Estimate(tau), p, runs)
            for (name, tau, _, runs), p in zip(trends, corrected, strict=True)
        ]  # fmt: skip
        if evidence:
            measure = f"τ of S and {METRICS[metric].title}"
            judged.append(Judged(f"More shots are better: {better}", TASKS[SHOOTING_TASK], measure, evidence))
    return judged


def _costs(costs: Sequence[FoundCost]) -> list[Judged]:
    judged = []
    for machine in machines(costs):
        ratio = machine.relative(OURS)
        if ratio is None or machine.cost.study != "cost":
            continue
        low, high = ratio.low, ratio.high
        speaks = None if low is None or high is None or low <= COMPARABLE < high else high <= COMPARABLE
        evidence = Evidence("PAC4SAC", with_interval(ratio, digits=2), speaks, ratio, None, str(machine.times[OURS].n))
        printed = COST[OURS].mean / COST[REFERENCE].mean
        measure = f"seconds, times those of SAC (paper {printed:.2f})"
        judged.append(Judged("PAC4SAC costs about as much as SAC", machine.title, measure, [evidence]))
    return judged
