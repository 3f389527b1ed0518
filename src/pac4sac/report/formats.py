"""A table for a terminal, as CSV, LaTeX and Markdown, and a report as Markdown: in one file, or, as code hosts show it
best, as a README with a page for each section. Its page for a browser is in `page.py`."""

import csv
import html
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, compress, groupby
from typing import TYPE_CHECKING, Any

from pac4sac.report.tables import TEXTS, Answer, Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

IN_THE_README = ("summary",)
GIVEN_UP_FIRST = ("final evaluation", "Family", "Runs", "solved", "P(better", "p (Holm)", "IQM")  # on a narrow terminal
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    records, out = table.records, io.StringIO()
    lines: list[list[str]] = [[plain(value) for value in record.values()] for record in records]
    if not records:
        lines = [[f"{c.text} ({c.note})" if c.note else c.text or c.verdict for c in row] for row in table.cells]
    head = list(records[0]) if records else [column.head for column in table.shown]
    csv.writer(out, lineterminator="\n").writerows([head, *([_no_formula(text) for text in line] for line in lines)])
    return out.getvalue()


def plain(value: Any) -> str:
    # Ten digits are more than any result has, and fewer than two machines may disagree in.
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would compute gets the mark by which it takes it for text."""
    is_number = re.fullmatch(r"[-+](inf|[\d.]+(e[-+]?\d+)?)", text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else text


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _without(table: Table, heads: tuple[str, ...] = ()) -> tuple[list[Column], list[list[Cell]]]:
    """Its columns and rows, but no commands, nor columns of which the head begins like one of these."""
    kept = [not (column.code or column.head.startswith(heads)) for column in table.shown]
    return list(compress(table.shown, kept)), [list(compress(row, kept)) for row in table.cells]


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """The heads over neighbours, each with the number of its columns; none where no column has one."""
    spans = [(group, len(list(members))) for group, members in groupby(c.group for c in columns)]
    return spans if any(group for group, _ in spans) else []


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
        columns, rows = _that_fits(table, console.width)
        for column in columns:
            head = f"{column.group}\n{column.title}" if column.group else column.title
            rich_table.add_column(head, justify="right" if column.numeric else "left")
        for row in rows:
            rich_table.add_row(*("\n".join(cell.lines) for cell in row))
        console.print(rich_table)


def _that_fits(table: Table, width: int) -> tuple[list[Column], list[list[Cell]]]:
    """What a console has room for; what is left out is in the report anyway."""
    for given_up in range(len(GIVEN_UP_FIRST) + 1):
        columns, rows = _without(table, GIVEN_UP_FIRST[:given_up])
        texts = [[*column.title.split(), *chain(*(row[k].lines for row in rows))] for k, column in enumerate(columns)]
        if sum(max(map(len, of_column)) + 3 for of_column in texts) <= width:
            break
    return columns, rows


# --- LaTeX


def to_latex(table: Table) -> str:
    """A `tabular` for the booktabs package, to be put into a table by the one who inputs it."""
    columns, rows = _without(table)
    groups = [
        f"\\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1) for group, n in _groups(columns)
    ]
    heads = [_latex(column.title) for column in columns]
    body = []
    for row in rows:
        body.append([_latex(cell.text or cell.verdict) for cell in row])
        if any(cell.published or cell.note for cell in row):
            below = [_latex("; ".join(filter(None, (c.note, c.published, c.verdict)))) for c in row]
            body.append([f"{{\\footnotesize {text}}}" if text else "" for text in below])
    over, middle = ([" & ".join(line) + " \\\\" for line in lines if line] for lines in ([groups, heads], body))
    kinds = "".join("r" if column.numeric else "l" for column in columns)
    opening = [
        f"% {_one_line(table.caption)}",
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{kinds}}}",
        "\\toprule",
    ]
    return "\n".join([*opening, *over, "\\midrule", *middle, "\\bottomrule", "\\end{tabular}\n"])


def _latex(text: str) -> str:
    return "".join(TEXTS["latex"].get(c, c) for c in _one_line(text))


# --- Markdown


def to_markdown(table: Table) -> str:
    """Commands would make a table too wide to read on a code host: they follow it, a line each."""
    columns, rows = _without(table)
    cells = [[_markdown(column.head) for column in columns], *(map(_markdown_cell, row) for row in rows)]
    heads, *lines = ["| " + " | ".join(row) + " |" for row in cells]
    rule = "|" + "|".join("---:" if c.numeric else "---" for c in columns) + "|"
    body = "\n".join([heads, rule, *lines]) + "\n" + _commands(table)
    if table.folded:
        return f"<details><summary>{html.escape(table.caption, quote=False)}</summary>\n\n{body}\n</details>\n"
    return f"**{_markdown(table.caption)}**\n\n{body}"


def _commands(table: Table) -> str:
    rows_of: dict[str, list[list[str]]] = defaultdict(list)
    # Two names tell a row; the rest of it stands in the table.
    first = next((k for k, column in enumerate(table.shown[:2]) if column.numeric), 2)
    names = [k for k in range(len(table.shown[:first])) if not any(row[k].verdict for row in table.cells)]
    for row in table.cells:
        for cell, column in zip(row, table.shown, strict=True):
            if column.code and cell.text:
                rows_of[cell.text].append([row[k].text for k in names])
    lines = []
    for line, rows in rows_of.items():
        common = [texts[0] for texts in zip(*rows, strict=True) if len(set(texts)) == 1]
        lines += [f"# {_one_line(', '.join(common))}", line] if common else [line]
    text = "\n".join(lines)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    return f"\n{fence}sh\n{text}\n{fence}\n" if lines else ""


def _markdown_cell(cell: Cell) -> str:
    parts = [_markdown(part) for part in (cell.text, cell.note, cell.published) if part]
    return "<br>".join([*parts, f"*{cell.verdict}*"] if cell.verdict else parts)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>]|\](?=[(\[:]))", r"\\\1", _one_line(text))


def _markdown_line(text: str) -> str:
    """Of a text that has code in it; a name in it must begin neither a line, nor HTML, nor a link of its own."""
    code_or_not = re.split(r"(`[^`]*`)", _one_line(text))
    return "".join(
        part if k % 2 else re.sub(r"<(?=[\w/!?])|\](?=[(\[:])", r"\\\g<0>", part) for k, part in enumerate(code_or_not)
    )


def markdown_files(title: str, facts: Facts, sections: Sequence[Section], in_pages: bool) -> dict[str, str]:
    """The text of each, by its name. The README says what is on the other pages."""
    first = [section for section in sections if section.name in IN_THE_README or not in_pages]
    others = [section for section in sections if section not in first]
    head = [f"# {_markdown_line(title)}", "; ".join(f"{value} {name}" for value, name in facts)]
    shown = [text for section in first for text in _markdown_section(section, "##")]
    if not in_pages:
        return {"report.md": _join(*head, *shown)}
    links = [f"* [{_markdown_line(section.title)}]({section.name}.md)" for section in others]
    readme = _join(*head, TEXTS["by_whom"], *shown, "## Pages", "\n".join([*links, TEXTS["on_one_page"]]))
    pages = {f"{section.name}.md": _join(*_markdown_section(section, "#"), TEXTS["back"]) for section in others}
    return {"README.md": readme} | pages


def _markdown_section(section: Section, level: str) -> list[str]:
    return [f"{level} {_markdown_line(section.title)}", *map(_markdown_block, section.blocks)]


def _markdown_block(block: Block) -> str:
    if isinstance(block, Table):
        return to_markdown(block).rstrip()
    if isinstance(block, Picture):
        return f"![{_markdown_line(block.caption)}](figures/{block.name}.svg)"
    return block if isinstance(block, str) else "\n".join(map(_markdown_item, block))


def _markdown_item(item: str | Answer) -> str:
    if isinstance(item, str):
        return f"* {_markdown_line(item)}"
    verdict = f"**{item.verdict.capitalize()}.** " if item.verdict else ""
    return f"* {_markdown_line(item.question)}<br>{verdict}{_markdown_line(item.text)}"


def _join(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
