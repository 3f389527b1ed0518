"""The summary of a certificate in words. It says whether the critic is biased, how wide a
calibrated interval is, and how good the policy is at least."""

from collections.abc import Iterator

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pac4sac.base.grouping import group_by
from pac4sac.certificates.bound_rows import BoundRow
from pac4sac.certificates.certificate import Certificate
from pac4sac.certificates.fresh_episodes import SHOOTING_SHARE
from pac4sac.certificates.intervals import NOMINAL
from pac4sac.certificates.returns import ReturnCertificate
from pac4sac.certificates.texts import TEXTS
from pac4sac.cli.certificate_numbers import estimate_text, number, percent_text
from pac4sac.runs.statistics import UNDECIDED

SUMMARY = TEXTS["summary"]


def summary(c: Certificate) -> Iterator[Text | Padding]:
    """Yield three questions, each with its answer."""
    answers = {
        "is_biased": _about_bias(c),
        "how_wide": _about_intervals(c),
        "how_good": _about_returns(c),
    }
    for question, answer in answers.items():
        if lines := list(answer):
            yield Text(SUMMARY[question], "bold")
            for line in lines:
                yield Padding(line, (0, 0, 0, 2))


def confidence_text(c: Certificate) -> str:
    return f"{100 * (1 - c.delta):g}%"


# --- bias


def _about_bias(c: Certificate) -> Iterator[Text | Table]:
    bias = c.bias.get("policy")
    if bias is None:
        return
    yield Text(_bias_answer(c))
    yield Text(SUMMARY["phases"].format(percent=confidence_text(c)))
    yield _phases_table(c)
    if c.unjudged_steps:
        steps = c.unjudged_steps + bias.steps
        yield Text(SUMMARY["short_values"].format(unjudged=c.unjudged_steps, steps=steps))


def _bias_answer(c: Certificate) -> str:
    """Return a sentence on whether and when in the episode the critic is biased."""
    biased = [phase for phase in c.phases if phase.verdict != UNDECIDED]
    verdicts = group_by(biased, key=lambda phase: phase.verdict)
    if not verdicts:
        overall = c.bias["policy"].verdict
        text = SUMMARY["unbiased" if overall == UNDECIDED else "only_on_average"]
        return str(text.format(verdict=overall))
    parts = []
    for verdict, phases in verdicts.items():
        text = SUMMARY["at_all_times" if len(phases) == len(c.phases) else "at_times"]
        times = " and ".join(phase.name for phase in phases)
        parts.append(text.format(verdict=verdict, times=times))
    return str(SUMMARY["biased"].format(phases=" and ".join(parts)))


def _phases_table(c: Certificate) -> Table:
    """Return the table of the bias by third of the episode, and over the whole episode."""
    grid = Table.grid(padding=(0, 2))
    rows = [
        (
            f"{phase.name} (steps {phase.first_step:,}–{phase.last_step:,})",
            phase.bias,
            phase.verdict,
        )
        for phase in c.phases
    ]
    whole = c.bias["policy"]
    for name, bias, verdict in [*rows, ("whole episode", whole.estimate, whole.verdict)]:
        shown = "no bias found" if verdict == UNDECIDED else verdict
        grid.add_row(name, estimate_text(bias, signed=True), shown)
    return grid


# --- width


def _about_intervals(c: Certificate) -> Iterator[Text]:
    if c.interval is not None:
        covered = estimate_text(c.interval.constant_covered, percent_text)
        yield Text(SUMMARY["interval"].format(width=number(c.interval.constant), covered=covered))
    for home in c.calibration[:1]:
        share, nominal = estimate_text(home.share, percent_text), percent_text(NOMINAL)
        text = SUMMARY["own_interval"]
        yield Text(text.format(share=share, nominal=nominal, ratio=number(home.ratio)))
    if c.interval is not None and c.interval.half_width is not None:
        narrower = c.interval.half_width < 0.95 * c.interval.constant
        worth = SUMMARY["narrower" if narrower else "not_narrower"]
        deviations, width = number(c.interval.deviations or 0.0), number(c.interval.half_width)
        yield Text(SUMMARY["scaled"].format(deviations=deviations, width=width, worth=worth))
    yield from _absolute_error(c)


def _absolute_error(c: Certificate) -> Iterator[Text]:
    """Yield the bound on the absolute error; yield nothing if an assumption fails."""
    texts = {"certificate": SUMMARY["absolute"], "vacuous": SUMMARY["absolute_vacuous"]}
    for row in c.rows:
        if row.quantity != "absolute value error" or row.fails or row.says not in texts:
            continue
        bound = number(row.value) + (f", where {counted_text(row)}" if row.clipped else "")
        text, values = texts[row.says], _range_of_values(c)
        yield Text(text.format(percent=confidence_text(c), bound=bound, values=values))


def counted_text(row: BoundRow) -> str:
    """Return a clause on clipping: errors above the largest possible error are set to that
    error."""
    what = "errors" if row.quantity == "absolute value error" else "squares"
    return f"{what} above {number(row.trivial)} are counted as {number(row.trivial)}"


def _range_of_values(c: Certificate) -> str:
    low, high = map(number, c.rewards.of_values(c.gamma))
    values = "values without entropy" if c.alpha else "values"
    lie = "lie" if c.rewards.proven else "are assumed to lie"
    return f"{values} {lie} between {low} and {high}"


# --- returns


def _about_returns(c: Certificate) -> Iterator[Text]:
    """Yield the bound on the return of the policy in use, which is the shooting policy if the agent
    has one."""
    for last in c.returns[-1:]:
        yield Text(_return_bound(c, last))
        mean = number(last.mean.value)
        yield Text(SUMMARY["mean"].format(episodes=last.episodes, mean=mean))
        if advice := _episodes_advice(c, last):
            yield Text(advice)


def _return_bound(c: Certificate, last: ReturnCertificate) -> str:
    if last.betting is None:
        return str(SUMMARY["returns_none"].format(why=last.remark))
    text = SUMMARY["returns_vacuous" if last.has_vacuous_bound else "returns"]
    bound = number(last.betting)
    return str(text.format(percent=confidence_text(c), policy=last.policy, bound=bound))


def _episodes_advice(c: Certificate, last: ReturnCertificate) -> str:
    """Return advice on the number of episodes for a useful bound; empty without a bound."""
    if last.enough_episodes is None or last.useful is None:
        return ""
    if last.enough_episodes <= last.episodes:
        return str(SUMMARY["is_enough"])
    option = last.enough_episodes * (SHOOTING_SHARE if "shooting" in c.bias else 1)
    numbers = {"needed": last.enough_episodes, "episodes": last.episodes, "option": option}
    return str(SUMMARY["enough"].format(useful=number(last.useful), **numbers))
