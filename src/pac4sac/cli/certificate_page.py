"""The certificate as a page in the terminal: first in short, then measurement, bounds, calibration and policy."""

from collections.abc import Iterable, Iterator
from typing import get_args

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pac4sac.certificates.bounds_table import CAVEATS, Quantity, Row
from pac4sac.certificates.calibration import NOMINAL
from pac4sac.certificates.certificate import Certificate
from pac4sac.runs.statistics import Estimate
from pac4sac.training.value_error import Bias, policy_name

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


def show(certificate: Certificate, console: Console) -> None:
    c = certificate
    title = f"{c.run} on {c.task}: how far can its critic and its policy be trusted?"
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print()
    console.print(_list(("•", line) for line in (*in_short(c), *(Text(remark, "yellow") for remark in c.remarks))))
    console.print()
    console.print(bias_table(c))
    for piece in bounds_pages(c):
        console.print(piece)
    if c.calibration:
        console.print(calibration_table(c))
        console.print()
    console.print(policy_table(c))


# --- in short


def in_short(c: Certificate) -> Iterator[Text]:
    percent = f"{100 * (1 - c.delta):g} %"
    bias = c.bias.get("policy")
    if bias is not None:
        yield Text(f"The critic {_verdict(bias)}: m_p − G is {_with_interval(bias)} in the mean.")
    yield from (text for row in c.rows if row.quantity == "absolute value error" for text in _largest_error(c, row))
    words = [row.says for row in c.rows]
    fails = sum(not row.valid for row in c.rows)
    yield Text(
        f"Of {len(c.rows)} bounds {fails} rest on an assumption that fails. Certificates: "
        f"{words.count('certificate')}; vacuous, that is no better than what is known without data: "
        f"{words.count('vacuous')}."
    )
    if broken := [row for row in c.rows if row.says == "broken"]:
        yield Text(f"Broken by what was measured: {'; '.join(_named(row) for row in broken)}.", "red")
    for one in c.calibration[:1]:
        yield Text(
            f"m_p ± 2 {one.deviation} covers {_share(one.share)} of the returns, where {100 * NOMINAL:.0f} % would be "
            f"right: errors are {number(one.ratio)} times as large as it says."
        )
    for found in c.returns[-1:]:
        if found.betting is None:
            bound = found.remark
        elif found.vacuous(found.betting):
            bound = f"its expectation cannot be bounded better than by the least possible, {number(found.betting)}"
        else:
            bound = f"with {percent} confidence its expectation is above {number(found.betting)}"
        mean = f"The return of the policy ({found.policy}) is {number(found.mean.value)} in the mean"
        yield Text(f"{mean} of {found.episodes} episodes; {bound}.")


def _largest_error(c: Certificate, row: Row) -> Iterator[Text]:
    """Only what the row proves; where it is broken or rests on what fails, other lines say so."""
    low, high = (number(x) for x in c.rewards.of_values(c.gamma))
    lie = "lie" if c.rewards.proven else "are assumed to lie"
    values = f"values{' without entropy' if c.alpha else ''} {lie} between {low} and {high}"
    if row.says == "certificate":
        beyond = f", where {_counted(row)}" if row.clipped else ""
        percent = f"{100 * (1 - c.delta):g} %"
        yield Text(
            f"With {percent} confidence its mean absolute error is at most {number(row.value)}{beyond}; {values}."
        )
    elif row.says == "vacuous" and row.valid:
        yield Text(f"Its mean absolute error cannot be bounded better than without any data; {values}.")


def _counted(row: Row) -> str:
    what = "errors" if row.quantity == "absolute value error" else "squares"
    return f"{what} beyond {number(row.trivial)} count as {number(row.trivial)}"


def _verdict(bias: Bias) -> str:
    if bias.verdict == "undecided":
        return "shows no bias that these episodes could tell from none"
    return f"{bias.verdict} by {_percent(abs(bias.relative))} of the size of the returns"


def _named(row: Row) -> str:
    return f"{row.name} ({row.quantity}: {number(row.value)}, measured {number(row.measured.value)})"


# --- tables


def bias_table(c: Certificate) -> Table:
    table = _table("Measured value error: the claim m_p minus the return that follows, G")
    table.add_column("policy")
    table.add_column("m_p − G in the mean", justify="right")
    for header in ("rms", "mean G", "episodes", " steps"):
        table.add_column(header, justify="right", no_wrap=True)
    for policy, bias in c.bias.items():
        name = policy_name(policy, c.alpha)
        counts = (str(bias.episodes), f"{bias.steps:,}")
        table.add_row(name, _with_interval(bias), number(bias.rms), number(bias.mean_return), *counts)
    parts = next((a for a in c.along if a.policy == "policy"), None)
    signs = "".join(_sign(part) for part in parts.bias) if parts else ""
    lines = [f"Sign along the episode: {signs}", "(+ overestimated, − underestimated, · undecided)"]
    if c.unjudged_steps and "policy" in c.bias:
        steps = c.unjudged_steps + c.bias["policy"].steps
        lines += [
            f"Not judged: {c.unjudged_steps:,} of π's {steps:,} steps, too near to the time limit to know their G."
        ]
    if "shooting" in c.bias:
        lines += ["The critic learns the soft values of π. Shooting is another policy, judged by its plain returns."]
    table.caption = "\n".join(lines)
    table.caption_justify = "left"
    return table


def bounds_pages(c: Certificate) -> Iterator[Table | Text]:
    letters = {key: chr(ord("a") + place) for place, key in enumerate(k for k in CAVEATS if _occurs(c, k))}
    yield Text("\nBounds", "bold")
    kl = "none" if c.kl is None else number(c.kl)
    n = "none" if c.replay_tuples is None else f"{c.replay_tuples:,}"
    yield Text(
        f"δ = {c.delta:g}, γ = {c.gamma:g}, α = {number(c.alpha)}, KL = {kl}, tuples in the replay: {n}, {c.rewards}.\n"
        f"Fresh: {c.episodes} episodes of π certify, {c.episodes} others measure. Each bound holds on its own."
    )
    yield Text()
    for quantity in get_args(Quantity):
        rows = [row for row in c.rows if row.quantity == quantity]
        if rows:
            yield _bounds_table(c, quantity, rows, letters)
            yield Text()
    yield Text(
        "vacuous: no less than the largest possible value, to a thousandth. certificate: true with probability 1 − δ. "
        "holds here: an assumption fails, so it proves nothing, but what was measured lies below. broken: the measured "
        "lies above."
    )
    yield Text()
    if letters:
        yield Text("Assumptions that fail", "bold")
        yield _list((letter, Text(CAVEATS[key])) for key, letter in letters.items())
        yield Text()


def _bounds_table(c: Certificate, quantity: Quantity, rows: list[Row], letters: dict[str, str]) -> Table:
    formula = FORMULAS[quantity].format(epsilon=c.epsilon, epsilon_value=c.epsilon_value)
    measured, largest = rows[0].measured, rows[0].trivial
    limit = f"at most {number(largest)} without any data"
    if "rewards" in rows[0].fails:
        limit = f"at most {number(largest)} if rewards kept to their range"
    clipped = f"; {_counted(rows[0])}" if rows[0].clipped else ""
    table = _table(f"{quantity[0].upper()}{quantity[1:]}: {formula}\nmeasured {_estimate(measured)}; {limit}{clipped}")
    # The numbers of all tables decide, so that their columns lie below one another.
    widths = [max(least, *(len(_numbers(row)[i]) for row in c.rows)) for i, least in enumerate(NUMBERS.values())]
    table.add_column("bound", width=NAMES_AND_NUMBERS - sum(widths))
    table.add_column("data", width=6)
    for header, width in zip(NUMBERS, widths, strict=True):
        table.add_column(header, justify="right", width=width, no_wrap=True)
    table.add_column("", width=11)
    table.add_column("fails", width=6, overflow="fold")
    for row in rows:
        fails = "".join(sorted(letters[key] for key in row.fails))
        table.add_row(row.name, row.data, *_numbers(row), row.says, fails, style=STYLES[row.says])
    table.caption = "\n".join(f"{row.name}: {row.remark}" for row in rows if row.remark)
    table.caption_justify = "left"
    return table


def _numbers(row: Row) -> tuple[str, ...]:
    return f"{row.n:,}", "–" if row.kl is None else number(row.kl), number(row.risk), number(row.value)


def calibration_table(c: Certificate) -> Table:
    table = _table(f"Calibration: do m_p ± 2 {c.calibration[0].deviation} cover G? ({100 * NOMINAL:.0f} % if Gaussian)")
    table.add_column("states")
    for header in ("covered", "rms error", "rms dev.", "ratio", "steps"):
        table.add_column(header, justify="right", no_wrap=True)
    for one in c.calibration:
        numbers = (number(one.rms_error), number(one.rms_deviation), number(one.ratio), f"{one.steps:,}")
        table.add_row(one.where, _share(one.share), *numbers)
    table.caption = "G carries the chance of a single episode too, which no uncertainty about Q could cover."
    table.caption_justify = "left"
    return table


def policy_table(c: Certificate) -> Table:
    table = _table(f"Policy: what its expected return exceeds with {100 * (1 - c.delta):g} % confidence")
    table.add_column("policy")
    for header in ("episodes", "mean return", "empirical Bernstein", "betting"):
        table.add_column(header, justify="right")
    for one in c.returns:
        bounds = (
            "–" if x is None else "vacuous" if one.vacuous(x) else number(x)
            for x in (one.empirical_bernstein, one.betting)
        )
        table.add_row(one.policy, str(one.episodes), _estimate(one.mean), *bounds)
    remarks = dict.fromkeys(one.remark for one in c.returns)
    table.caption = "; ".join(remarks) + ". The mean's interval is Student's, which trusts returns to be normal."
    table.caption_justify = "left"
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)


def _list(items: Iterable[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for mark, text in items:
        grid.add_row(mark, text)
    return grid


def _occurs(c: Certificate, key: str) -> bool:
    return any(key in row.fails for row in c.rows)


# --- numbers


def number(value: float) -> str:
    if value != value or abs(value) == float("inf"):
        return "∞" if value > 0 else "–∞" if value < 0 else "?"
    size = abs(value)
    if size >= 1e6:
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.3g}" if size >= 0.001 or not size else f"{value:.0e}"


def _estimate(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return number(found.value)
    return f"{number(found.value)} ({number(found.low)} to {number(found.high)})"


def _with_interval(bias: Bias) -> str:
    return _estimate(Estimate(bias.bias, bias.low, bias.high))


def _share(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return _percent(found.value)
    return f"{_percent(found.value)} ({_percent(max(found.low, 0))} to {_percent(min(found.high, 1))})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _sign(part: Estimate) -> str:
    if part.low is None or part.high is None or part.low <= 0 <= part.high:
        return "·"
    return "+" if part.value > 0 else "−"
