"""The certificate as a page in the terminal: first in short, then measurement, bounds, calibration and policy."""

import math
from collections.abc import Callable, Iterable, Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pac4sac.certificates.bound_rows import CAVEATS, BoundRow
from pac4sac.certificates.calibration import NOMINAL
from pac4sac.certificates.certificate import Certificate
from pac4sac.certificates.critic_errors import Quantity
from pac4sac.runs.statistics import Estimate, bias_verdict

FORMULAS: dict[Quantity, str] = {
    "squared Bellman error": "E (Q − y)², y = r + γ E[Q(s′, a′) − α log π]",
    "value error": "E ‖Q_π − Q‖², measured as E (Q − G)², which adds the chance in one return G",
    "absolute value error": "E |m_p − G|",
    "bounded Bellman error": "E [1 − exp(−(Q − y)²/ε²)], ε = {epsilon:g}",
    "bounded value error": "E [1 − exp(−(Q − G)²/ε²)], ε = {epsilon_value:g}",
}
NUMBERS = {"N": 6, "KL": 5, "risk": 6, "at most": 7}  # and the least width of their columns
NAMES_AND_NUMBERS = 48  # characters for the name of a bound and its numbers, of 80 in a line
STYLES = {
    "vacuous": "dim",
    "broken": "bold red",
    "certificate": "bold green",
    "holds here": "yellow",
    "undecided": "yellow",
}
SIGNS = {"overestimates": "+", "underestimates": "−", "undecided": "·"}


def show(certificate: Certificate, console: Console) -> None:
    c = certificate
    title = f"{c.run} on {c.task}: how far can its critic and its policy be trusted?"
    console.print(Text(title, "bold"), soft_wrap=True)
    short = _list(("•", line) for line in (*in_short(c), *(Text(remark, "yellow") for remark in c.remarks)))
    calibration = (calibration_table(c), "") if c.calibration else ()
    for piece in ("", short, "", bias_table(c), *bounds_pages(c), *calibration, policy_table(c)):
        console.print(piece)


def in_short(c: Certificate) -> Iterator[Text]:
    percent = f"{100 * (1 - c.delta):g} %"
    bias = c.bias.get("policy")
    if bias is not None:
        verdict = f"{bias.verdict} by {_percent(abs(bias.relative))} of the size of the returns"
        if bias.verdict == "undecided":
            verdict = "shows no bias that these episodes could tell from none"
        yield Text(f"The critic {verdict}: m_p − G is {_text(bias.estimate)} in the mean.")
    # Only what is proven of the absolute error; where its bound is broken or rests on what fails, other lines say so.
    low, high = (number(x) for x in c.rewards.of_values(c.gamma))
    lie = "lie" if c.rewards.proven else "are assumed to lie"
    values = f"values{' without entropy' if c.alpha else ''} {lie} between {low} and {high}"
    for row in c.rows:
        if row.quantity == "absolute value error" and row.says == "certificate":
            beyond = f", where {_counted(row)}" if row.clipped else ""
            bound = f"its mean absolute error is at most {number(row.value)}{beyond}"
            yield Text(f"With {percent} confidence {bound}; {values}.")
        elif row.quantity == "absolute value error" and row.says == "vacuous" and not row.fails:
            yield Text(f"Its mean absolute error cannot be bounded better than without any data; {values}.")
    words = [row.says for row in c.rows]
    yield Text(
        f"Of {len(c.rows)} bounds {sum(bool(row.fails) for row in c.rows)} rest on an assumption that fails. "
        f"Certificates: {words.count('certificate')}; vacuous, that is no better than what is known without data: "
        f"{words.count('vacuous')}."
    )
    broken = [
        f"{row.name} ({row.quantity}: {number(row.value)}, measured {number(row.measured.value)})"
        for row in c.rows
        if row.says == "broken"
    ]
    if broken:
        yield Text(f"Broken by what was measured: {'; '.join(broken)}.", "red")
    for one in c.calibration[:1]:
        yield Text(
            f"m_p ± 2 {one.deviation} covers {_text(one.share, _percent)} of the returns, where {100 * NOMINAL:.0f} % "
            f"would be right: errors are {number(one.ratio)} times as large as it says."
        )
    for last in c.returns[-1:]:
        if last.betting is None:
            bound = last.remark
        elif last.vacuous(last.betting):
            bound = f"its expectation cannot be bounded better than by the least possible, {number(last.betting)}"
        else:
            bound = f"with {percent} confidence its expectation is above {number(last.betting)}"
        mean = f"The return of the policy ({last.policy}) is {number(last.mean.value)} in the mean"
        yield Text(f"{mean} of {last.episodes} episodes; {bound}.")


def bias_table(c: Certificate) -> Table:
    signs = "".join(SIGNS[bias_verdict(part)] for along in c.along if along.policy == "policy" for part in along.bias)
    lines = [f"Sign along the episode: {signs}", "(+ overestimated, − underestimated, · undecided)"]
    if c.unjudged_steps and "policy" in c.bias:
        steps = c.unjudged_steps + c.bias["policy"].steps
        unjudged = f"Not judged: {c.unjudged_steps:,} of π's {steps:,} steps"
        lines.append(f"{unjudged}, too near to the time limit to know their G.")
    if "shooting" in c.bias:
        lines.append("The critic learns the soft values of π. Shooting is another policy, judged by its plain returns.")
    title = "Measured value error: the claim m_p minus the return that follows, G"
    headers = ("m_p − G in the mean", "rms", "mean G", "episodes", " steps")
    table = _table(title, "\n".join(lines), "policy", *headers, wrapped=1)
    for policy, bias in c.bias.items():
        numbers = _text(bias.estimate), number(bias.rms), number(bias.mean_return)
        table.add_row(c.policy_name(policy), *numbers, str(bias.episodes), f"{bias.steps:,}")
    return table


def bounds_pages(c: Certificate) -> Iterator[Table | Text]:
    failing = {key for row in c.rows for key in row.fails}
    letters = {key: chr(ord("a") + place) for place, key in enumerate(key for key in CAVEATS if key in failing)}
    yield Text("\nBounds", "bold")
    kl = "none" if c.kl is None else number(c.kl)
    n = "none" if c.replay_tuples is None else f"{c.replay_tuples:,}"
    yield Text(
        f"δ = {c.delta:g}, γ = {c.gamma:g}, α = {number(c.alpha)}, KL = {kl}, tuples in the replay: {n}, {c.rewards}.\n"
        f"Fresh: {c.episodes} episodes of π certify, {c.episodes} others measure. Each bound holds on its own.\n"
    )
    for quantity in FORMULAS:
        if rows := [row for row in c.rows if row.quantity == quantity]:
            yield _bounds_table(c, rows, letters)
            yield Text()
    yield Text(
        "vacuous: no less than the largest possible value, to a thousandth. certificate: true with probability 1 − δ. "
        "holds here: an assumption fails, so it proves nothing, but what was measured lies below. broken: the measured "
        "lies above.\n"
    )
    if letters:
        yield Text("Assumptions that fail", "bold")
        yield _list((letter, Text(CAVEATS[key])) for key, letter in letters.items())
        yield Text()


def _bounds_table(c: Certificate, rows: list[BoundRow], letters: dict[str, str]) -> Table:
    """Of one quantity."""
    first = rows[0]
    formula = FORMULAS[first.quantity].format(epsilon=c.epsilon, epsilon_value=c.epsilon_value)
    known = "if rewards kept to their range" if "rewards" in first.fails else "without any data"
    limit = f"at most {number(first.trivial)} {known}{f'; {_counted(first)}' if first.clipped else ''}"
    title = f"{first.quantity[0].upper()}{first.quantity[1:]}: {formula}\nmeasured {_text(first.measured)}; {limit}"
    # The numbers of all tables decide, so that their columns lie below one another.
    widths = [max(least, *(len(_numbers(row)[i]) for row in c.rows)) for i, least in enumerate(NUMBERS.values())]
    table = _table(title, "\n".join(f"{row.name}: {row.remark}" for row in rows if row.remark))
    table.add_column("bound", width=NAMES_AND_NUMBERS - sum(widths))
    table.add_column("data", width=6)
    for header, width in zip(NUMBERS, widths, strict=True):
        table.add_column(header, justify="right", width=width, no_wrap=True)
    table.add_column("", width=11)
    table.add_column("fails", width=6, overflow="fold")
    for row in rows:
        fails = "".join(sorted(letters[key] for key in row.fails))
        table.add_row(row.name, row.data, *_numbers(row), row.says, fails, style=STYLES[row.says])
    return table


def _counted(row: BoundRow) -> str:
    what = "errors" if row.quantity == "absolute value error" else "squares"
    return f"{what} beyond {number(row.trivial)} count as {number(row.trivial)}"


def _numbers(row: BoundRow) -> tuple[str, ...]:
    return f"{row.n:,}", "–" if row.kl is None else number(row.kl), number(row.risk), number(row.value)


def calibration_table(c: Certificate) -> Table:
    title = f"Calibration: do m_p ± 2 {c.calibration[0].deviation} cover G? ({100 * NOMINAL:.0f} % if Gaussian)"
    caption = "G carries the chance of a single episode too, which no uncertainty about Q could cover."
    table = _table(title, caption, "states", "covered", "rms error", "rms dev.", "ratio", "steps")
    for one in c.calibration:
        numbers = (number(x) for x in (one.rms_error, one.rms_deviation, one.ratio))
        table.add_row(one.where, _text(one.share, _percent), *numbers, f"{one.steps:,}")
    return table


def policy_table(c: Certificate) -> Table:
    title = f"Policy: what its expected return exceeds with {100 * (1 - c.delta):g} % confidence"
    remarks = "; ".join(dict.fromkeys(one.remark for one in c.returns))
    caption = f"{remarks}. The mean's interval is Student's, which trusts returns to be normal."
    headers = ("episodes", "mean return", "empirical Bernstein", "betting")
    table = _table(title, caption, "policy", *headers, wrapped=len(headers))
    for one in c.returns:
        bounds = (
            "–" if x is None else "vacuous" if one.vacuous(x) else number(x)
            for x in (one.empirical_bernstein, one.betting)
        )
        table.add_row(one.policy, str(one.episodes), _text(one.mean), *bounds)
    return table


def _table(title: str, caption: str, *headers: str, wrapped: int = 0) -> Table:
    """All columns but the first hold numbers, of which so many may wrap."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    table.caption, table.caption_justify = caption, "left"
    for place, header in enumerate(headers):
        table.add_column(header, justify="right" if place else "left", no_wrap=place > wrapped)
    return table


def _list(items: Iterable[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for mark, text in items:
        grid.add_row(mark, text)
    return grid


def number(value: float) -> str:
    size = abs(value)
    if not math.isfinite(value):
        return "?" if math.isnan(value) else "∞" if value > 0 else "–∞"
    if size >= 1e6:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.3g}" if size >= 0.001 or not size else f"{value:.0e}"


def _text(estimate: Estimate, write: Callable[[float], str] = number) -> str:
    if estimate.low is None or estimate.high is None:
        return write(estimate.value)
    return f"{write(estimate.value)} ({write(estimate.low)} to {write(estimate.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
