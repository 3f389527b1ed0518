"""A table for a terminal, as Markdown, LaTeX and CSV, and a report as Markdown: in one file, or, as code hosts show it
best, as a README with a page for each section."""

import csv
import html
import io
import re
from collections.abc import Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from pac4sac.report.tables import Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

IN_THE_README = ("summary", "claims")
GIVEN_UP_FIRST = ("final evaluation", "Family", "Runs", "solved", "P(better", "p (Holm)", "IQM")  # on a narrow terminal
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if records := table.records:
        writer.writerow(records[0])
        writer.writerows([_plain(value) for value in record.values()] for record in records)
    else:
        writer.writerow([column.head for column in table.shown])
        writer.writerows([f"{c.text} ({c.note})" if c.note else c.text for c in row] for row in table.cells)
    return out.getvalue()


def _plain(value: Any) -> Any:
    # Ten digits are more than any result has, and fewer than two machines may disagree in.
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else value


# --- on a terminal


def tables_as_text(tables: Sequence[Table]) -> str:
    """As `show_tables` shows them, for whoever prints it."""
    from rich.console import Console

    # A console in a notebook would show them there at once; it knows how wide that is, though.
    console = Console(width=Console().width, force_jupyter=False, color_system=None)
    with console.capture() as captured:
        show_tables(console, tables)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip()


def show_tables(console: "Console", tables: Sequence[Table]) -> None:
    from rich import box
    from rich.table import Table as RichTable

    for table in tables:
        rich_table = RichTable(title=table.caption, title_justify="left", box=box.SIMPLE)
        places = columns_that_fit(table, console.width)
        for column in (table.shown[place] for place in places):
            head = f"{column.group}\n{column.title}" if column.group else column.title
            rich_table.add_column(head, justify="right" if column.numeric else "left")
        for row in table.cells:
            rich_table.add_row(*("\n".join(row[place].lines) for place in places))
        console.print(rich_table)


def columns_that_fit(table: Table, width: int) -> list[int]:
    """Places of the columns a console has room for; what is left out is in the report anyway."""
    places = [place for place, column in enumerate(table.shown) if not column.code]
    lines = [[line for row in table.cells for line in row[place].lines] for place, _ in enumerate(table.shown)]
    widest = [max(map(len, [*c.title.split(), *lines[place]])) for place, c in enumerate(table.shown)]
    for title in GIVEN_UP_FIRST:
        if sum(widest[place] + 3 for place in places) <= width:
            break
        places = [place for place in places if not table.shown[place].head.startswith(title)]
    return places


# --- LaTeX

LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "−": "$-$", "—": "---", "≤": "$\\le$", "×": "$\\times$", "<": "$<$", ">": "$>$"},
    **{"ξ": "$\\xi$", "α": "$\\alpha$", "√": "$\\sqrt{}$", "≥": "$\\ge$"},
}


def to_latex(table: Table) -> str:
    """A `tabular` for the booktabs package, to be put into a table by the one who inputs it."""
    columns, rows = _without_commands(table)
    lines = [f"% {table.caption}", "% needs \\usepackage{booktabs}"]
    lines += ["\\begin{tabular}{" + "".join("r" if c.numeric else "l" for c in columns) + "}", "\\toprule"]
    if any(c.group for c in columns):
        spans = [(group, len(list(members))) for group, members in groupby(c.group for c in columns)]
        heads = [f"\\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1) for group, n in spans]
        lines.append(" & ".join(heads) + " \\\\")
    lines += [" & ".join(_latex(c.title) for c in columns) + " \\\\", "\\midrule"]
    for row in rows:
        lines.append(" & ".join(_latex(cell.text) for cell in row) + " \\\\")
        if any(cell.published or cell.note for cell in row):
            lines.append(" & ".join(map(_small, row)) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _small(cell: Cell) -> str:
    below = "; ".join(part for part in (cell.note, cell.published, cell.verdict) if part)
    return f"{{\\footnotesize {_latex(below)}}}" if below else ""


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def _without_commands(table: Table) -> tuple[list[Column], list[list[Cell]]]:
    kept = [place for place, column in enumerate(table.shown) if not column.code]
    return [table.shown[place] for place in kept], [[row[place] for place in kept] for row in table.cells]


# --- Markdown


def to_markdown(table: Table) -> str:
    """Commands would make a table too wide to read on a code host: they follow it, a line each."""
    columns, rows = _without_commands(table)
    lines = ["| " + " | ".join(_markdown(column.head) for column in columns) + " |"]
    lines.append("|" + "|".join("---:" if c.numeric else "---" for c in columns) + "|")
    lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
    body = "\n".join(lines) + "\n" + _commands(table)
    if table.folded:
        return f"<details><summary>{html.escape(table.caption, quote=False)}</summary>\n\n{body}\n</details>\n"
    return f"**{_markdown(table.caption)}**\n\n{body}"


def _commands(table: Table) -> str:
    rows_of: dict[str, list[list[str]]] = {}
    # Two names tell a row; the rest of it stands in the table.
    names = next((k for k, column in enumerate(table.shown[:2]) if column.numeric), 2)
    for row in table.cells:
        for cell, column in zip(row, table.shown, strict=True):
            if column.code and cell.text:
                rows_of.setdefault(cell.text, []).append([c.text for c in row[:names]])
    lines = []
    for line, rows in rows_of.items():
        common = [texts[0] for texts in zip(*rows, strict=True) if len(set(texts)) == 1]
        lines += [f"# {', '.join(common)}"] if common else []
        lines.append(line)
    return "\n```sh\n" + "\n".join(lines).replace("`", "'") + "\n```\n" if lines else ""


def _markdown_cell(cell: Cell) -> str:
    parts = [_markdown(part) for part in (cell.text, cell.note, cell.published) if part]
    return "<br>".join([*parts, f"*{cell.verdict}*"] if cell.verdict else parts)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>])", r"\\\1", text).replace("\n", " ")


def markdown_files(title: str, facts: Facts, sections: Sequence[Section], in_pages: bool) -> dict[str, str]:
    """The text of each, by its name. The README says what is on the other pages."""
    parts = {section.name: [f"## {section.title}", *map(_block, section.blocks)] for section in sections}
    head = [f"# {title}", "; ".join(f"{value} {name}" for value, name in facts)]
    if not in_pages:
        return {"report.md": _join([*head, *chain(*parts.values())])}
    others = [section for section in sections if section.name not in IN_THE_README]
    links = [f"* [{section.title}]({section.name}.md)" for section in others]
    links.append("* [all on one page](report.html), with tables that can be sorted; to be opened in a browser")
    head.append("Written by `pac4sac report --pages` from stored runs, and not edited by hand.")
    first = chain(*(parts[name] for name in parts if name in IN_THE_README))
    pages = {"README.md": _join([*head, *first, "## Pages", "\n".join(links)])}
    for section in others:
        _, *blocks = parts[section.name]
        pages[f"{section.name}.md"] = _join([f"# {section.title}", *blocks, "[All results](README.md)"])
    return pages


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return to_markdown(block).rstrip()
    if isinstance(block, Picture):
        return f"![{block.caption}](figures/{block.name}.svg)"
    return "\n".join(f"* {item}" for item in block) if isinstance(block, list) else block


def _join(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"
