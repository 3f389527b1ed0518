"""Judge the claims of the paper by our runs, with a verdict for each claim on each task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import scipy  # loads its parts when they are first used: scipy.stats takes a second

from pac4sac.base.text import NOTHING, p_text
from pac4sac.paper.claims import CONTRADICTED, HOLDS, ClaimTest, JudgedClaim
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
    at_paper_setting,
    departures,
    find_settings,
)
from pac4sac.paper.verdicts import MARGIN_TEXT, NO_DATA, is_same
from pac4sac.report.bias_and_coverage import BIAS, critic_verdict, final_bias
from pac4sac.report.comparison import UNFINISHED, Compared, Quantity, compare, is_significant
from pac4sac.report.cost import BASELINE, Machine
from pac4sac.report.tables import in_digits
from pac4sac.report.variants import METRICS, Variant
from pac4sac.runs.statistics import (
    OVERESTIMATES,
    UNDERESTIMATES,
    Difference,
    Estimate,
    Summary,
    fisher,
    holm,
    summarise,
    welch,
)

SHOOTING_RIVALS = {
    "SAC + shooting": {"shots": PAPER_SHOTS},
    "one plain critic + shooting": {"critics": 1, "shots": PAPER_SHOTS},
}
LESS = {"episodes": "fewer episodes until solved", "regret": "less regret"}
SCALES = {"episodes": 1.0, "regret": 1000.0}  # divisors of displayed numbers
FEWEST_SHOTS = 3  # numbers of candidates that a trend needs


def judge_claims(context: PaperContext) -> list[JudgedClaim]:
    """Return all claims that our runs can judge."""
    kinds = (_less_than_other_rows, _less_than_plain_critics, _biases, _shots, _costs)
    return [claim for kind in kinds for claim in kind(context)]


# --- PAC4SAC against other algorithms


def _less_than_other_rows(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge PAC4SAC against the other rows of the paper's tables."""
    for table, ours in zip(context.rows.tables, (OURS, FULL), strict=True):
        for (metric, better), task in product(LESS.items(), TASKS):
            if own := at_paper_setting(table.variants.get((task, ours))):
                claim = TEXTS["claims_of_rivals"][table.name].format(better)
                others = _other_rows(table, task, ours)
                yield from _against(table.name, claim, own, others, metric)


def _other_rows(table: PaperTable, task: str, ours: str) -> dict[str, Variant | None]:
    """Return the other rows by title; a row without runs at the paper's setting is None."""
    others = {}
    for row, title in table.titles.items():
        if row != ours:
            others[title] = at_paper_setting(table.variants.get((task, row)), table.free)
    return others


def _less_than_plain_critics(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge PAC4SAC against plain critics with shooting.

    The paper's baselines do not shoot. These controls show what the critic adds to shooting."""
    for task in TASKS:
        if own := at_paper_setting(context.rows.table_1.get((task, OURS))):
            results = context.results(own.task.title)
            others = {}
            for name, given in SHOOTING_RIVALS.items():
                others[name] = find_settings(results, "sac", PRESET, given)
            claim = TEXTS["claims_of_rivals"]["critics"]
            yield from _against(CONTROLS, claim, own, others, "regret")


def _against(
    study: str, claim: str, own: Variant, others: Mapping[str, Variant | None], metric: str
) -> Iterator[JudgedClaim]:
    """Judge a claim against all baselines that it names; yield nothing if none has data."""
    quantity = Quantity(
        lambda variant: variant.values(metric),
        more=CONTRADICTED,
        less=HOLDS,
        test=lambda other, own: Pair(own, other, metric).difference,
    )
    known = {name: other for name, other in others.items() if other}
    compared = compare(list(known.values()), own, quantity)
    rows = dict(zip(known, compared, strict=True))
    tests = [_test(name, rows.get(name), own, metric) for name in others]
    if any(test.text != NO_DATA for test in tests):
        shown_in = " in thousands" if metric == "regret" else ""
        measure = f"Δ {METRICS[metric].title}"
        yield JudgedClaim(study, claim, TASKS[own.task.name], measure, tests, shown_in)


@dataclass(frozen=True)
class Pair:
    """Compare PAC4SAC with another variant by a metric."""

    own: Variant
    other: Variant
    metric: str

    @property
    def is_by_solved(self) -> bool:
        """Return whether numbers of solved runs are compared, because a side without a solved run
        has only E_max as episodes."""
        return self.metric == "episodes" and not (self.own.solved and self.other.solved)

    @property
    def summaries(self) -> tuple[Summary, Summary]:
        return summarise(self.own.values(self.metric)), summarise(self.other.values(self.metric))

    @property
    def difference(self) -> Difference:
        """Return ours − theirs with Welch's test, or with the p-value of Fisher's exact test."""
        difference = welch(*self.summaries)
        if not self.is_by_solved:
            return difference
        own, other = self.own, self.other
        p = fisher((own.solved, len(own.judged)), (other.solved, len(other.judged)))
        return Difference(difference.value, None, None, p)

    @property
    def is_same(self) -> bool:
        """Return whether the means are equivalent; always False with capped values or diverged
        runs."""
        diverged = self.own.count("diverged") + self.other.count("diverged")
        return not diverged and not self.is_by_solved and is_same(*self.summaries)

    def text(self, difference: Difference, p: float | None) -> str:
        text = in_digits(difference, SCALES[self.metric], 1)
        if self.is_by_solved:
            text += f", solved {self.own.solved_text} vs {self.other.solved_text}"
        return _with_p(text, p)


def _with_p(text: str, p: float | None) -> str:
    return text if p is None else f"{text} ({p_text(p)})"


def _test(name: str, row: Compared | None, own: Variant, metric: str) -> ClaimTest:
    """Return the test of PAC4SAC against one other variant."""
    if row is None:
        return ClaimTest(name, NO_DATA)
    if row.difference is None:
        return ClaimTest(name, UNFINISHED if row.verdict == UNFINISHED else NO_DATA)
    pair = Pair(own, row.variant, metric)
    speaks = {HOLDS: True, CONTRADICTED: False}.get(row.verdict)
    text = pair.text(row.difference, row.p)
    if speaks is None and pair.is_same:
        text += f", equivalent within {MARGIN_TEXT}"
    # Leaving out a diverged run favours its side.
    diverged = (own if speaks else row.variant).count("diverged")
    if speaks is not None and diverged:
        speaks, text = None, f"{text} (without {diverged} diverged)"
    runs = f"{len(own.values(metric))} and {len(row.values)}"
    return ClaimTest(name, text, speaks, row.difference, row.p, runs)


# --- overestimation


def _biases(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge whether PAC4SAC's critic overestimates less than SAC's."""
    table_1 = context.rows.table_1
    for task, title in TASKS.items():
        own = at_paper_setting(table_1.get((task, OURS)))
        sac = at_paper_setting(table_1.get((task, "sac")))
        test = _bias_test(own, sac) if own and sac else None
        if test:
            claim = "Overestimation is cured with one critic"
            measure = "Δ value bias at the end of training"
            yield JudgedClaim(BIAS.study, claim, title, measure, [test])


def _bias_test(own: Variant, sac: Variant) -> ClaimTest | None:
    """Compare the value bias with SAC's; None if there are too few measurements."""
    if not BIAS.measured([own, sac]):
        return None
    quantity = Quantity(lambda variant: BIAS.ends(variant, "bias"), OVERESTIMATES, UNDERESTIMATES)
    theirs, row = compare([sac, own], sac, quantity)
    if row.verdict == UNFINISHED:
        return ClaimTest("SAC", UNFINISHED)
    if min(len(row.values), len(theirs.values)) < 2:
        return None
    p = NOTHING if row.p is None else p_text(row.p)
    bias = in_digits(final_bias(own), digits=1)
    text = f"{in_digits(row.difference, digits=1)} ({p}); the bias of PAC4SAC is {bias}"
    runs = f"{len(row.values)} and {len(theirs.values)}"
    return ClaimTest("SAC", text, _is_cured(row, own), row.difference, row.p, runs)


def _is_cured(row: Compared, own: Variant) -> bool | None:
    """Judge the cure: False if the bias is above SAC's and above zero, True if below SAC's and not
    above zero, else None."""
    is_above_zero = critic_verdict(own) == OVERESTIMATES
    if row.verdict == OVERESTIMATES and is_above_zero:
        return False
    if row.verdict == UNDERESTIMATES and not is_above_zero:
        return True
    return None


# --- shooting


def _shots(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge the trend over all S, and over S > 1."""
    variants = [v for v in context.rows.shooting.values() if not departures(v, ("shots",))]
    shooting = [variant for variant in variants if variant.shots > 1]
    for metric, better in LESS.items():
        groups = {"all S": _values_by_shots(variants, metric)}
        groups["S > 1"] = _values_by_shots(shooting, metric)
        if tests := _trends(groups):
            claim = f"More shots are better: {better}"
            measure = f"Kendall's τ of S and {METRICS[metric].title}"
            yield JudgedClaim("shooting", claim, TASKS[SHOOTING_TASK], measure, tests)


def _values_by_shots(variants: Sequence[Variant], metric: str) -> list[tuple[int, float]]:
    return [(variant.shots, value) for variant in variants for value in variant.values(metric)]


def _trends(groups: Mapping[str, Sequence[tuple[int, float]]]) -> list[ClaimTest]:
    """Test whether the metric falls as S grows, in groups with enough values of S."""
    trends = {}
    for name, runs in groups.items():
        if len({shots for shots, _ in runs}) >= FEWEST_SHOTS:
            trends[name] = scipy.stats.kendalltau(*zip(*runs, strict=True))
    p_values = holm([float(trend.pvalue) for trend in trends.values()])
    tests = []
    for (name, trend), p in zip(trends.items(), p_values, strict=True):
        tau = Estimate(float(trend.statistic))
        speaks = tau.value < 0 if is_significant(p) else None
        text = _with_p(in_digits(tau, digits=2), p)
        tests.append(ClaimTest(name, text, speaks, tau, p, str(len(groups[name]))))
    return tests


# --- cost


def _costs(context: PaperContext) -> Iterator[JudgedClaim]:
    """Judge the cost of a step on each machine of the cost study."""
    printed = COST[OURS].mean / COST[BASELINE].mean
    measure = f"cost relative to SAC (paper: {printed:.2f})"
    for machine in timed_per_step(context.collection.costs):
        if machine.study == "cost" and (test := _cost_test(machine)):
            claim = "PAC4SAC costs about as much as SAC"
            yield JudgedClaim("cost", claim, machine.title, measure, [test])


def _cost_test(machine: Machine) -> ClaimTest | None:
    """Test whether the interval of the cost relative to SAC is below the limit of comparable
    costs."""
    ratio = machine.relative(OURS)
    if ratio is None:
        return None
    speaks = None
    if ratio.low is not None and ratio.low > COMPARABLE:
        speaks = False
    elif ratio.high is not None and ratio.high <= COMPARABLE:
        speaks = True
    runs = str(len(machine.seconds[OURS]))
    return ClaimTest("PAC4SAC", in_digits(ratio, digits=2), speaks, ratio, None, runs)
