"""What the paper claims, and whether our runs bear it out: a verdict for each claim on each task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from pac4sac.reporting.collection import FoundCost
from pac4sac.reporting.comparison import SIGNIFICANT, UNFINISHED
from pac4sac.reporting.cost_section import REFERENCE, machines
from pac4sac.reporting.groups import METRICS, Group
from pac4sac.reporting.paper import COST
from pac4sac.reporting.paper_sections import TERM_TITLES, departures
from pac4sac.reporting.rows import ALGORITHMS, PAPER_SHOTS, SHOOTING_TASK, TASKS, TERMS, PaperRows
from pac4sac.reporting.statistics import Estimate, holm, summarise, welch
from pac4sac.reporting.tables import Cell, Column, Section, Table, p_text, with_interval

HOLDS, IN_PART, CONTRADICTED, NOT_SHOWN = "holds", "in part", "contradicted", "not shown"
COMPARABLE = 1.25  # times the cost of SAC, at most
OURS, FULL = "pac4sac", TERMS[True, True]
BETTER = {"episodes": "fewer episodes until solved", "regret": "less regret"}
INTRO = (
    "A claim holds where every comparison comes out its way, in part where some do; it is contradicted where one comes "
    "out the other way, and not shown where none can be told from chance, which is no proof of the contrary. "
    "Differences are PAC4SAC's minus the other's with Welch's 95 % interval, so that less than zero speaks for the "
    "claim; what can be told from chance is decided at p < 0.05. Each row is a family of tests of its own: p-values "
    "are corrected (Holm) for the comparisons named in it, and for no others. Trends over S are Kendall's τ, over all "
    f"runs. Cost counts as comparable where the interval of the ratio to SAC stays below {COMPARABLE}."
)


@dataclass(frozen=True)
class Evidence:
    """One comparison that a claim makes."""

    name: str
    text: str
    speaks_for_it: bool | None  # None: cannot be told from chance
    estimate: Estimate | None  # None: runs are under way
    p: float | None
    runs: str


@dataclass(frozen=True)
class Judged:
    claim: str
    on: str
    measure: str
    evidence: Sequence[Evidence]

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
    judged = [*_rivals(rows), *_terms(rows), *_critics(groups, rows), *_shots(rows), *_costs(costs)]
    if not judged:
        return None
    columns = [Column(title, numeric=False) for title in ("Claim", "On", "Verdict", "Evidence")]
    body = [
        [
            Cell(j.claim, j.claim),
            Cell(j.on, j.on),
            Cell("", j.verdict, verdict=j.verdict),
            Cell(f"{j.measure}: " + "; ".join(f"{e.name} {e.text}" for e in j.evidence)),
        ]
        for j in judged
    ]
    records = [
        {"claim": j.claim, "on": j.on, "verdict": j.verdict, "measure": j.measure, "compared": e.name,
         "estimate": e.estimate and e.estimate.value, "low": e.estimate and e.estimate.low,
         "high": e.estimate and e.estimate.high, "p_holm": e.p, "runs": e.runs}
        for j in judged for e in j.evidence
    ]  # fmt: skip
    return Section("claims", "What the paper claims", [INTRO, Table("claims", "Verdicts", columns, body, records)])


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
) -> dict[str, Group]:
    rivals = {title: found[task, row] for row, title in titles.items() if row != own and (task, row) in found}
    return {title: group for title, group in rivals.items() if not departures(group, free)}


def _critics(groups: Mapping[str, Sequence[Group]], rows: PaperRows) -> list[Judged]:
    """The paper lets none of its rivals shoot: those that do tell what the critic adds to shooting."""
    judged = []
    named = {"SAC that shoots": {}, "one plain critic that shoots": {"critics": 1}}
    for task, title in TASKS.items():
        own = rows.table_1.get((task, OURS))
        beside = [group for members in groups.values() for group in members if own and group.task is own.task]
        others = {
            name: group
            for name, settings in named.items()
            for group in beside
            if group.algo == "sac" and not group.calibration and group.departures == {"shots": PAPER_SHOTS, **settings}
        }
        claim = "The critic makes the gain: less regret than plain critics that shoot as much"
        judged += _against(claim, title, own, others, "regret")
    return judged


def _against(claim: str, on: str, own: Group | None, others: Mapping[str, Group], metric: str) -> list[Judged]:
    """Nothing where there is nothing to compare, or the runs are not of the paper's setting."""
    if own is None or departures(own, ()):
        return []
    pairs = {name: (own.values(metric), other.values(metric)) for name, other in others.items()}
    pairs = {name: values for name, values in pairs.items() if all(values)}
    found = {name: welch(*map(summarise, values)) for name, values in pairs.items()}
    scale = 1000.0 if metric == "regret" else 1.0
    evidence = []
    for (name, d), p in zip(found.items(), holm([d.p for d in found.values()]), strict=True):
        estimate = Estimate(d.value, d.low, d.high)
        speaks = d.value < 0 if p is not None and p < SIGNIFICANT else None
        told = with_interval(estimate, scale, 1)
        # What a diverged run would have cost is not known, and leaving it out flatters its side.
        if diverged := (own if speaks else others[name]).count("diverged") if speaks is not None else 0:
            speaks, told = None, f"{told} ({diverged} diverged left out)"
        runs = " and ".join(str(len(values)) for values in pairs[name])
        evidence.append(Evidence(name, told, speaks, estimate, p, runs))
    for name, other in others.items():
        if own.under_way or other.under_way:
            evidence.append(Evidence(name, UNFINISHED, None, None, None, ""))
    measure = f"Δ {METRICS[metric].title}" + (", thousands" if scale > 1 else "")
    return [Judged(claim, on, measure, evidence)] if evidence else []


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
