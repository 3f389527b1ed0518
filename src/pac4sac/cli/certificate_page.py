"""Print a certificate: a summary, then tables of measurement, bounds, calibration and policy."""

import math
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pac4sac.certificates.bound_rows import BoundRow
from pac4sac.certificates.certificate import Certificate
from pac4sac.certificates.intervals import NOMINAL
from pac4sac.certificates.returns import ReturnCertificate
from pac4sac.certificates.texts import CAVEATS, TEXTS
from pac4sac.runs.statistics import Estimate, bias_verdict

FORMULAS, SHORT, PAGE = (TEXTS[part] for part in ("formulas", "short", "page"))
NUMBERS = {"N": 6, "KL": 5, "risk": 6, "at most": 7}  # and the least width of their columns
NAMES_AND_NUMBERS = 48  # characters of a line of 80
# the others are yellow
STYLES = {"vacuous": "dim", "broken": "bold red", "certificate": "bold green"}
SIGNS = {"overestimates": "+", "underestimates": "−", "undecided": "·"}


def show(c: Certificate, console: Console, *, full: bool = True) -> None:
    """Print the certificate, with all its tables if `full`."""
    console.print(Text(PAGE["title"].format(run=c.run, task=c.task), "bold"), soft_wrap=True)
    sentences = [*in_short(c), *(Text(remark, "yellow") for remark in c.remarks)]
    pieces: list[RenderableType] = ["", _list(("•", sentence) for sentence in sentences), ""]
    if full:
        pieces += [bias_table(c), *bounds_pages(c)]
        if c.calibration:
            pieces += [calibration_table(c), ""]
        pieces.append(policy_table(c))
    for piece in pieces:
        console.print(piece)


def in_short(c: Certificate) -> Iterator[Text]:
    """Yield what the certificate says in a few sentences."""
    yield from _bias_sentence(c)
    yield from _absolute_error_sentences(c)
    yield from _bounds_sentences(c)
    yield from _calibration_sentences(c)
    yield from _return_sentence(c)


def _bias_sentence(c: Certificate) -> Iterator[Text]:
    bias = c.bias.get("policy")
    if bias is None:
        return
    verdict = SHORT["no_bias"]
    if bias.verdict != "undecided":
        verdict = f"{bias.verdict} by {_percent(abs(bias.relative))} of the size of the returns"
    yield Text(f"The critic {verdict}: m_p − G is {_text(bias.estimate)} in the mean.")


def _absolute_error_sentences(c: Certificate) -> Iterator[Text]:
    """Yield what is proven of the absolute error.

    Other sentences report a bound that is broken or rests on an assumption that fails.
    """
    texts = {"certificate": SHORT["absolute"], "vacuous": SHORT["absolute_vacuous"]}
    for row in _rows_on(c, "absolute value error"):
        if row.fails or row.says not in texts:
            continue
        bound = number(row.value)
        if row.clipped:
            bound += f", where {_counted(row)}"
        text, values = texts[row.says], _range_of_values(c)
        yield Text(text.format(percent=_confidence(c), bound=bound, values=values))


def _rows_on(c: Certificate, quantity: str) -> list[BoundRow]:
    return [row for row in c.rows if row.quantity == quantity]


def _range_of_values(c: Certificate) -> str:
    low, high = map(number, c.rewards.of_values(c.gamma))
    values = "values without entropy" if c.alpha else "values"
    lie = "lie" if c.rewards.proven else "are assumed to lie"
    return f"{values} {lie} between {low} and {high}"


def _bounds_sentences(c: Certificate) -> Iterator[Text]:
    failing = sum(bool(row.fails) for row in c.rows)
    words = Counter(row.says for row in c.rows)
    yield Text(SHORT["bounds"].format(bounds=len(c.rows), failing=failing, words=words))
    broken = [
        f"{row.name} ({row.quantity}: {number(row.value)}, measured {number(row.measured.value)})"
        for row in c.rows
        if row.says == "broken"
    ]
    if broken:
        yield Text(f"Broken by what was measured: {'; '.join(broken)}.", "red")


def _calibration_sentences(c: Certificate) -> Iterator[Text]:
    for one in c.calibration[:1]:
        covered, nominal = _text(one.share, _percent), _percent(NOMINAL)
        text = SHORT["calibration"]
        yield Text(text.format(one=one, covered=covered, nominal=nominal, ratio=number(one.ratio)))
    if c.interval is not None:
        yield Text(
            SHORT["interval"].format(
                deviation=c.calibration[0].deviation,
                covered=_text(c.interval.covered, _percent),
                deviations=number(c.interval.deviations),
                half_width=number(c.interval.half_width),
                constant=number(c.interval.constant),
            )
        )


def _return_sentence(c: Certificate) -> Iterator[Text]:
    for last in c.returns[-1:]:
        bound = last.remark
        if last.betting is not None:
            text = SHORT["returns_vacuous" if last.vacuous(last.betting) else "returns_bound"]
            bound = text.format(percent=_confidence(c), bound=number(last.betting))
        yield Text(SHORT["returns"].format(last=last, mean=number(last.mean.value), bound=bound))


def bias_table(c: Certificate) -> Table:
    """Return the measured error of each policy."""
    headers = ("m_p − G in the mean", "rms", "mean G", "episodes", " steps")
    table = _table(PAGE["bias"], _bias_caption(c), "policy", *headers, wrapped=1)
    for policy, bias in c.bias.items():
        numbers = _text(bias.estimate), number(bias.rms), number(bias.mean_return)
        table.add_row(c.policy_name(policy), *numbers, str(bias.episodes), f"{bias.steps:,}")
    return table


def _bias_caption(c: Certificate) -> str:
    """Return the signs of the error along an episode, and which steps were not judged."""
    parts = [part for along in c.along if along.policy == "policy" for part in along.bias]
    caption: str = PAGE["signs"].format(signs="".join(SIGNS[bias_verdict(part)] for part in parts))
    if c.unjudged_steps and "policy" in c.bias:
        steps = c.unjudged_steps + c.bias["policy"].steps
        caption += PAGE["unjudged"].format(unjudged=c.unjudged_steps, steps=steps)
    if "shooting" in c.bias:
        caption += PAGE["shooting"]
    return caption


def bounds_pages(c: Certificate) -> Iterator[Table | Text]:
    """Yield a table of bounds for each quantity, and the assumptions that fail."""
    letters = _letters_of_caveats(c.rows)
    kl = "none" if c.kl is None else number(c.kl)
    tuples = "none" if c.replay_tuples is None else f"{c.replay_tuples:,}"
    yield Text("\nBounds", "bold")
    yield Text(PAGE["bounds"].format(c=c, alpha=number(c.alpha), kl=kl, tuples=tuples))
    for quantity in FORMULAS:
        if rows := _rows_on(c, quantity):
            yield _bounds_table(c, rows, letters)
            yield Text()
    yield Text(PAGE["words"])
    if letters:
        yield Text("Assumptions that fail", "bold")
        yield _list((letter, Text(CAVEATS[key])) for key, letter in letters.items())
        yield Text()


def _letters_of_caveats(rows: Iterable[BoundRow]) -> dict[str, str]:
    """Return a letter for each assumption that fails, in the order of their texts."""
    failing = {key for row in rows for key in row.fails}
    caveats = [key for key in CAVEATS if key in failing]
    return dict(zip(caveats, string.ascii_lowercase, strict=False))


def _bounds_table(c: Certificate, rows: list[BoundRow], letters: dict[str, str]) -> Table:
    """Return the table of the bounds on one quantity."""
    widths = _number_widths(c.rows)
    remarks = "\n".join(f"{row.name}: {row.remark}" for row in rows if row.remark)
    table = _table(_bounds_title(c, rows[0]), remarks)
    table.add_column("bound", width=NAMES_AND_NUMBERS - sum(widths))
    table.add_column("data", width=6)
    for header, width in zip(NUMBERS, widths, strict=True):
        table.add_column(header, justify="right", width=width, no_wrap=True)
    table.add_column("", width=11)
    table.add_column("fails", width=6, overflow="fold")
    for row in rows:
        fails = "".join(sorted(letters[key] for key in row.fails))
        style = STYLES.get(row.says, "yellow")
        table.add_row(row.name, row.data, *_numbers(row), row.says, fails, style=style)
    return table


def _number_widths(rows: Sequence[BoundRow]) -> list[int]:
    """Return the widths of the columns of numbers, which are the same in all tables."""
    columns = zip(*map(_numbers, rows), strict=True)
    return [
        max(least, *map(len, column))
        for least, column in zip(NUMBERS.values(), columns, strict=True)
    ]


def _bounds_title(c: Certificate, row: BoundRow) -> str:
    name, formula = row.quantity[0].upper() + row.quantity[1:], FORMULAS[row.quantity].format(c=c)
    known = "if rewards kept to their range" if "rewards" in row.fails else "without any data"
    limit = f"at most {number(row.trivial)} {known}"
    if row.clipped:
        limit += f"; {_counted(row)}"
    return f"{name}: {formula}\nmeasured {_text(row.measured)}; {limit}"


def _counted(row: BoundRow) -> str:
    what = "errors" if row.quantity == "absolute value error" else "squares"
    return f"{what} beyond {number(row.trivial)} count as {number(row.trivial)}"


def _numbers(row: BoundRow) -> tuple[str, ...]:
    return (
        f"{row.n:,}",
        "–" if row.kl is None else number(row.kl),
        number(row.risk),
        number(row.value),
    )


def calibration_table(c: Certificate) -> Table:
    """Return how often the intervals of the critic cover the returns, by states."""
    deviation, nominal = c.calibration[0].deviation, _percent(NOMINAL)
    title = PAGE["calibration"].format(deviation=deviation, nominal=nominal)
    headers = ("covered", "rms error", "rms dev.", "ratio", "rank", "steps")
    table = _table(title, PAGE["chance"], "states", *headers)
    for one in c.calibration:
        numbers = map(number, (one.rms_error, one.rms_deviation, one.ratio, one.rank_correlation))
        table.add_row(one.where, _text(one.share, _percent), *numbers, f"{one.steps:,}")
    return table


def policy_table(c: Certificate) -> Table:
    """Return the mean return of each policy, with lower bounds of its expectation."""
    title = PAGE["returns"].format(percent=100 * (1 - c.delta))
    remarks = "; ".join(dict.fromkeys(one.remark for one in c.returns))
    headers = ("episodes", "mean return", "empirical Bernstein", "betting")
    caption = PAGE["student"].format(remarks=remarks)
    table = _table(title, caption, "policy", *headers, wrapped=len(headers))
    for one in c.returns:
        bounds = [_return_bound(one, x) for x in (one.empirical_bernstein, one.betting)]
        table.add_row(one.policy, str(one.episodes), _text(one.mean), *bounds)
    return table


def _return_bound(certificate: ReturnCertificate, bound: float | None) -> str:
    if bound is None:
        return "–"
    return "vacuous" if certificate.vacuous(bound) else number(bound)


def _table(title: str, caption: str, *headers: str, wrapped: int = 0) -> Table:
    """Return a table without rows. All columns but the first are for numbers; the headers of the
    first `wrapped` of these may wrap."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0
    )
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
    """Return a number with about three digits."""
    size = abs(value)
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "–∞"
    if size >= 1e6:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.0e}" if 0 < size < 0.001 else f"{value:.3g}"


def _text(estimate: Estimate, write: Callable[[float], str] = number) -> str:
    """Return an estimate, with its confidence interval if there is one."""
    if estimate.low is None or estimate.high is None:
        return write(estimate.value)
    return f"{write(estimate.value)} ({write(estimate.low)} to {write(estimate.high)})"


def _confidence(c: Certificate) -> str:
    return f"{100 * (1 - c.delta):g} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
