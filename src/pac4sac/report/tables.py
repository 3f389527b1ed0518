"""Tables and the sections around them, and a table as Markdown, LaTeX and CSV."""

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pac4sac.base.text import NOTHING, decimals, digits_of
from pac4sac.runs.statistics import Estimate, Summary

Value = float | int | str | None


@dataclass(frozen=True)
class Cell:
    text: str = NOTHING
    value: Value = None  # to sort by
    paper: str = ""  # the paper's number, shown below ours
    verdict: str = ""
    hint: str = ""
    note: str = ""  # on how many runs, where not on all
    code: bool = False


@dataclass(frozen=True)
class Column:
    title: str
    group: str = ""  # a common head over neighbours
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    name: str  # of its files
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    records: Sequence[dict[str, Any]] = ()  # what CSV gets; without them the cells as shown
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    figure: Any = field(repr=False)


@dataclass(frozen=True)
class Listing:
    items: Sequence[str]


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence["str | Table | Picture | Listing"]


# --- numbers as text


def mean_sd(summary: Summary | None, scale: float = 1.0) -> str:
    if summary is None:
        return NOTHING
    digits = digits_of(summary.mean / scale)  # for both, so that they can be compared
    sd = "" if summary.sd is None else f" ± {decimals(summary.sd / scale, digits)}"
    return decimals(summary.mean / scale, digits) + sd


def with_interval(estimate: Estimate | None, scale: float = 1.0, digits: int | None = None) -> str:
    if estimate is None:
        return NOTHING
    digits = digits_of(estimate.value / scale) if digits is None else digits
    told = decimals(estimate.value / scale, digits)
    if estimate.low is None or estimate.high is None:
        return told
    return f"{told} [{decimals(estimate.low / scale, digits)}, {decimals(estimate.high / scale, digits)}]"


# --- formats


def to_markdown(table: Table) -> str:
    """Commands would make a table too wide to read on a code host: they follow it, a line each."""
    shown = [k for k, _ in enumerate(table.columns) if not any(row[k].code for row in table.rows)]
    columns = [table.columns[k] for k in shown]
    heads = [f"{c.group}: {c.title}" if c.group else c.title for c in columns]
    lines = ["| " + " | ".join(_markdown(head) for head in heads) + " |"]
    lines.append("|" + "|".join("---:" if c.numeric else "---" for c in columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_markdown_cell(row[k]) for k in shown) + " |")
    body = "\n".join(lines) + "\n" + _commands(table)
    if table.folded:
        return f"<details><summary>{html.escape(table.caption, quote=False)}</summary>\n\n{body}\n</details>\n"
    return f"**{_markdown(table.caption)}**\n\n{body}"


def _commands(table: Table) -> str:
    named: dict[str, list[list[str]]] = {}
    # Two names tell a row; the rest of it stands in the table.
    names = next((k for k, column in enumerate(table.columns[:2]) if column.numeric), 2)
    for row in table.rows:
        for cell in row:
            if cell.code and cell.text:
                named.setdefault(cell.text, []).append([c.text for c in row[:names]])
    if not named:
        return ""
    lines = []
    for command, rows in named.items():
        common = [cells[0] for cells in zip(*rows, strict=True) if len(set(cells)) == 1]
        lines += [f"# {', '.join(common)}".replace("`", "'")] if common else []
        lines.append(command.replace("`", "'"))
    return "\n```sh\n" + "\n".join(lines) + "\n```\n"


def _markdown_cell(cell: Cell) -> str:
    text = f"`{cell.text.replace('|', '¦')}`" if cell.code else _markdown(cell.text)
    paper = f"paper {_markdown(cell.paper)}" if cell.paper else ""
    verdict = f"*{cell.verdict}*" if cell.verdict else ""
    return "<br>".join(part for part in (text, _markdown(cell.note), paper, verdict) if part)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>])", r"\\\1", text).replace("\n", " ")


def to_latex(table: Table) -> str:
    """A `tabular` for the booktabs package, to be put into a table by the one who inputs it."""
    kept = [k for k, column in enumerate(table.columns) if not any(row[k].code for row in table.rows)]
    columns = [table.columns[k] for k in kept]
    lines = [f"% {table.caption}", "% needs \\usepackage{booktabs}"]
    lines.append("\\begin{tabular}{" + "".join("r" if c.numeric else "l" for c in columns) + "}")
    lines.append("\\toprule")
    if any(c.group for c in columns):
        spans = [(group, len(list(members))) for group, members in groupby(c.group for c in columns)]
        heads = [
            f"\\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & ".join([""] * n) for group, n in spans
        ]
        lines.append(" & ".join(heads) + " \\\\")
    lines += [" & ".join(_latex(c.title) for c in columns) + " \\\\", "\\midrule"]
    for row in table.rows:
        lines.append(" & ".join(_latex(row[k].text) for k in kept) + " \\\\")
        if any(row[k].paper or row[k].note for k in kept):
            told = [_small(row[k]) for k in kept]
            lines.append(" & ".join(told) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _small(cell: Cell) -> str:
    told = "; ".join(part for part in (cell.note, f"paper {cell.paper}" if cell.paper else "", cell.verdict) if part)
    return f"{{\\footnotesize {_latex(told)}}}" if told else ""


LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "−": "$-$", "—": "---", "≤": "$\\le$", "×": "$\\times$", "<": "$<$", ">": "$>$"},
    **{"ξ": "$\\xi$", "α": "$\\alpha$", "√": "$\\sqrt{}$", "≥": "$\\ge$"},
}


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def to_csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if table.records:
        names = list(dict.fromkeys(name for record in table.records for name in record))
        writer.writerow(names)
        writer.writerows([_plain(record.get(name)) for name in names] for record in table.records)
    else:
        writer.writerow([f"{c.group}: {c.title}" if c.group else c.title for c in table.columns])
        writer.writerows([f"{c.text} ({c.note})" if c.note else c.text for c in row] for row in table.rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    # Ten digits are more than any result has, and fewer than two machines may disagree in.
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else value
