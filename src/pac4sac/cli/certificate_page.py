"""The printed certificate: a summary, then tables of errors, bounds, calibration and returns."""

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pac4sac.certificates.bound_rows import BoundRow
from pac4sac.certificates.certificate import Certificate
from pac4sac.certificates.intervals import NOMINAL
from pac4sac.certificates.returns import ReturnCertificate
from pac4sac.certificates.texts import CAVEATS, TEXTS
from pac4sac.cli.certificate_numbers import estimate_text, number, percent_text
from pac4sac.cli.certificate_summary import counted_text, summary
from pac4sac.runs.statistics import bias_verdict

FORMULAS, PAGE = TEXTS["formulas"], TEXTS["page"]
# Columns of numbers, with their minimum widths.
NUMBERS = {"N": 6, "KL": 5, "risk": 6, "at most": 7}
NAMES_AND_NUMBERS = 48  # characters of an 80-column line
# all other verdicts are yellow
STYLES = {"vacuous": "dim", "broken": "bold red", "certificate": "bold green"}
SIGNS = {"overestimates": "+", "underestimates": "−", "undecided": "·"}


def show(c: Certificate, console: Console, *, full: bool = True) -> None:
    """Print the certificate, with all its tables if `full`."""
    title = TEXTS["summary"]["title"].format(run=c.run, task=c.task)
    console.print(Text(title, "bold underline"), soft_wrap=True)
    pieces: list[RenderableType] = ["", *summary(c), ""]
    if c.remarks:
        pieces += [_list(("•", Text(remark, "yellow")) for remark in c.remarks), ""]
    if full:
        pieces += [bias_table(c), *bounds_pages(c)]
        if c.calibration:
            pieces += [calibration_table(c), ""]
        pieces.append(policy_table(c))
    for piece in pieces:
        console.print(piece)


def bias_table(c: Certificate) -> Table:
    """Return the measured error of each policy."""
    headers = ("mean of m_p − G", "rms", "mean G", "episodes", " steps")
    table = _table(PAGE["bias"], _bias_caption(c), "policy", *headers, wrapped=1)
    for policy, bias in c.bias.items():
        numbers = estimate_text(bias.estimate), number(bias.rms), number(bias.mean_return)
        table.add_row(c.policy_name(policy), *numbers, str(bias.episodes), f"{bias.steps:,}")
    return table


def _bias_caption(c: Certificate) -> str:
    """Describe the sign of the error along an episode, and the number of steps that are not
    judged."""
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
    words, failing = Counter(row.says for row in c.rows), sum(bool(row.fails) for row in c.rows)
    counts = {"bounds": len(c.rows), "words": words, "failing": failing}
    yield Text("\nBounds", "bold")
    yield Text(PAGE["bounds"].format(c=c, alpha=number(c.alpha), kl=kl, tuples=tuples, **counts))
    if broken := _broken(c):
        yield Text(PAGE["broken"].format(bounds="; ".join(broken)), "red")
    for quantity in FORMULAS:
        if rows := _rows_on(c, quantity):
            yield _bounds_table(c, rows, letters)
            yield Text()
    yield Text(PAGE["words"])
    if letters:
        yield Text("Assumptions that fail", "bold")
        yield _list((letter, Text(CAVEATS[key])) for key, letter in letters.items())
        yield Text()


def _rows_on(c: Certificate, quantity: str) -> list[BoundRow]:
    return [row for row in c.rows if row.quantity == quantity]


def _broken(c: Certificate) -> list[str]:
    """Return the bounds that are below the measured error."""
    return [
        f"{row.name} ({row.quantity}: {number(row.value)}, measured {number(row.measured.value)})"
        for row in c.rows
        if row.says == "broken"
    ]


def _letters_of_caveats(rows: Iterable[BoundRow]) -> dict[str, str]:
    """Return a letter for each failing assumption, in the order of the texts."""
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
    """Return the widths of the columns of numbers, which are the same for all tables."""
    columns = zip(*map(_numbers, rows), strict=True)
    return [
        max(least, *map(len, column))
        for least, column in zip(NUMBERS.values(), columns, strict=True)
    ]


def _bounds_title(c: Certificate, row: BoundRow) -> str:
    name, formula = row.quantity[0].upper() + row.quantity[1:], FORMULAS[row.quantity].format(c=c)
    known = "if rewards stayed in their range" if "rewards" in row.fails else "without any data"
    limit = f"at most {number(row.trivial)} {known}"
    if row.clipped:
        limit += f"; {counted_text(row)}"
    return f"{name}: {formula}\nmeasured {estimate_text(row.measured)}; {limit}"


def _numbers(row: BoundRow) -> tuple[str, ...]:
    return (
        f"{row.n:,}",
        "–" if row.kl is None else number(row.kl),
        number(row.risk),
        number(row.value),
    )


def calibration_table(c: Certificate) -> Table:
    """Return the table of the critic's coverage by kind of state."""
    deviation, nominal = c.calibration[0].deviation, percent_text(NOMINAL)
    title = PAGE["calibration"].format(deviation=deviation, nominal=nominal)
    headers = ("covered", "rms error", "rms std", "ratio", "rank", "steps")
    table = _table(title, PAGE["chance"], "states", *headers)
    for one in c.calibration:
        numbers = map(number, (one.rms_error, one.rms_deviation, one.ratio, one.rank_correlation))
        table.add_row(one.where, estimate_text(one.share, percent_text), *numbers, f"{one.steps:,}")
    return table


def policy_table(c: Certificate) -> Table:
    """Return the table of mean returns by policy, with lower bounds on the expectation."""
    title = PAGE["returns"].format(percent=100 * (1 - c.delta))
    remarks = "; ".join(dict.fromkeys(one.remark for one in c.returns))
    headers = ("episodes", "mean return", "empirical Bernstein", "betting")
    caption = PAGE["student"].format(remarks=remarks)
    table = _table(title, caption, "policy", *headers, wrapped=len(headers))
    for one in c.returns:
        bounds = [_return_bound(one, x) for x in (one.empirical_bernstein, one.betting)]
        table.add_row(one.policy, str(one.episodes), estimate_text(one.mean), *bounds)
    return table


def _return_bound(certificate: ReturnCertificate, bound: float | None) -> str:
    if bound is None:
        return "–"
    return "vacuous" if certificate.vacuous(bound) else number(bound)


def _table(title: str, caption: str, *headers: str, wrapped: int = 0) -> Table:
    """Return a table without rows. The columns after the first hold numbers; the headers in
    `wrapped` may wrap."""
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
