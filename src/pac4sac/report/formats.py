"""A table for a terminal, as CSV, LaTeX and Markdown, and a report as Markdown: in one file, or, as
code hosts show it best, as a README with a page for each section. Its page for a browser is in
`page.py`."""

import csv
import html
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, compress, groupby
from typing import TYPE_CHECKING, Any

from pac4sac.base.text import NOTHING
from pac4sac.report.tables import TEXTS, Answer, Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

IN_THE_README = ("summary",)
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    records, out = table.records, io.StringIO()
    lines: list[list[str]] = [[plain(value) for value in record.values()] for record in records]
    if not records:
        lines = [
            [f"{c.text} ({c.note})" if c.note else c.text or c.verdict for c in row]
            for row in table.cells
        ]
    head = list(records[0]) if records else [column.head for column in table.shown]
    csv.writer(out, lineterminator="\n").writerows(
        [head, *([_no_formula(text) for text in line] for line in lines)]
    )
    return out.getvalue()


def plain(value: Any) -> str:
    # Ten digits are more than any result has, and fewer than two machines may disagree in.
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would compute gets the mark by which it takes it for text."""
    is_number = re.fullmatch(r"[-+](inf|[\d.]+(e[-+]?\d+)?)", text)
    return (
        f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else text
    )


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _without_commands(table: Table) -> tuple[list[Column], list[list[Cell]]]:
    """Its columns and rows."""
    kept = [not column.code for column in table.shown]
    return list(compress(table.shown, kept)), [list(compress(row, kept)) for row in table.cells]


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """The heads over neighbours, each with the number of its columns; none where no column has
    one."""
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
        columns, rows = _without_commands(table)
        lines = [[row[k].lines for row in rows] for k in range(len(columns))]  # by column
        heads = [f"{column.group}\n{column.title}".strip() for column in columns]
        widths = [
            max(map(len, chain(head.split(), *texts)))
            for head, texts in zip(heads, lines, strict=True)
        ]
        widths[0] = min(widths[0], console.width // 2)
        places = [
            k
            for k, texts in enumerate(lines)
            if not rows or any(text != [NOTHING] for text in texts)
        ]
        for number, part in enumerate(_parts_that_fit(widths, places, console.width - 1)):
            rich_table = RichTable(
                title=None if number else table.caption, title_justify="left", box=box.SIMPLE
            )
            for k in part:
                justify: Any = "right" if columns[k].numeric else "left"
                rich_table.add_column(heads[k], justify=justify, width=widths[k], overflow="fold")
            for row in zip(*(lines[k] for k in part), strict=True):
                rich_table.add_row(*map("\n".join, row))
            console.print(rich_table)


def _parts_that_fit(widths: Sequence[int], places: Sequence[int], width: int) -> list[list[int]]:
    """The columns at these places, as far as a console has room for them side by side, then further
    ones behind the first, which names a row. As few parts as can be, and as narrow as that
    allows."""

    def parts_of(width: int) -> list[list[int]]:
        first, *others = places
        parts = [[first]]
        for place in others:
            if len(parts[-1]) > 1 and sum(widths[k] + 3 for k in [*parts[-1], place]) > width:
                parts.append([first])
            parts[-1].append(place)
        return parts

    fewest = len(parts_of(width))
    return next(
        parts for parts in map(parts_of, range(width // 2, width + 1)) if len(parts) == fewest
    )


# --- LaTeX


def to_latex(table: Table) -> str:
    """A `tabular` for the booktabs package, to be put into a table by the one who inputs it."""
    columns, rows = _without_commands(table)
    groups = [
        f"\\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1)
        for group, n in _groups(columns)
    ]
    heads = [_latex(column.title) for column in columns]
    body = []
    for row in rows:
        body.append([_latex(cell.text or cell.verdict) for cell in row])
        if any(cell.published or cell.note for cell in row):
            below = [_latex("; ".join(filter(None, (c.note, c.published, c.verdict)))) for c in row]
            body.append([f"{{\\footnotesize {text}}}" if text else "" for text in below])
    over, middle = (
        [" & ".join(line) + " \\\\" for line in lines if line] for lines in ([groups, heads], body)
    )
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
    columns, rows = _without_commands(table)
    cells = [
        [_markdown(column.head) for column in columns],
        *(map(_markdown_cell, row) for row in rows),
    ]
    heads, *lines = ["| " + " | ".join(row) + " |" for row in cells]
    rule = "|" + "|".join("---:" if c.numeric else "---" for c in columns) + "|"
    body = "\n".join([heads, rule, *lines]) + "\n" + _commands(table)
    if table.folded:
        summary = html.escape(table.caption, quote=False)
        return f"<details><summary>{summary}</summary>\n\n{body}\n</details>\n"
    return f"**{_markdown(table.caption)}**\n\n{body}"


def _commands(table: Table) -> str:
    rows_of: dict[str, list[list[str]]] = defaultdict(list)
    # Two names tell a row; the rest of it stands in the table.
    first = next((k for k, column in enumerate(table.shown[:2]) if column.numeric), 2)
    names = [
        k for k in range(len(table.shown[:first])) if not any(row[k].verdict for row in table.cells)
    ]
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
    """Of a text that has code in it; a name in it must begin neither a line, nor HTML, nor a link
    of its own."""
    code_or_not = re.split(r"(`[^`]*`)", _one_line(text))
    return "".join(
        part if k % 2 else re.sub(r"<(?=[\w/!?])|\](?=[(\[:])", r"\\\g<0>", part)
        for k, part in enumerate(code_or_not)
    )


def markdown_files(
    title: str, facts: Facts, sections: Sequence[Section], in_pages: bool
) -> dict[str, str]:
    """The text of each, by its name. The README says what is on the other pages."""
    first = [section for section in sections if section.name in IN_THE_README or not in_pages]
    others = [section for section in sections if section not in first]
    head = [f"# {_markdown_line(title)}", "; ".join(f"{value} {name}" for value, name in facts)]
    shown = [text for section in first for text in _markdown_section(section, "##")]
    if not in_pages:
        return {"report.md": _join(*head, *shown)}
    links = [f"* [{_markdown_line(section.title)}]({section.name}.md)" for section in others]
    readme = _join(
        *head, TEXTS["by_whom"], *shown, "## Pages", "\n".join([*links, TEXTS["on_one_page"]])
    )
    pages = {
        f"{section.name}.md": _join(*_markdown_section(section, "#"), TEXTS["back"])
        for section in others
    }
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
