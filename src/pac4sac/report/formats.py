"""A table for a terminal, as CSV, LaTeX and Markdown, and a report as Markdown: in one file, or, as
code hosts show it best, as a README with a page for each section. Its page for a browser is in
`page.py`."""

import csv
import html
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, compress, groupby
from typing import TYPE_CHECKING, Any

from pac4sac.base.text import NOTHING
from pac4sac.report.tables import TEXTS, Answer, Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

IN_THE_README = ("summary",)
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    """Return the values of the columns that have keys, else the cells as shown."""
    if records := table.records:
        head = list(records[0])
        lines = [[plain(value) for value in record.values()] for record in records]
    else:
        head = [column.head for column in table.shown]
        lines = [[_cell_in_one_line(cell) for cell in row] for row in table.cells]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        writer.writerow([_no_formula(text) for text in line])
    return out.getvalue()


def _cell_in_one_line(cell: Cell) -> str:
    return f"{cell.text} ({cell.note})" if cell.note else cell.text or cell.verdict


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
    for table in tables:
        columns, rows = _without_commands(table)
        lines = [[row[k].lines for row in rows] for k in range(len(columns))]  # by column
        shown = [_TextColumn(column, texts) for column, texts in zip(columns, lines, strict=True)]
        shown[0].width = min(shown[0].width, console.width // 2)
        places = [k for k, column in enumerate(shown) if not column.is_empty]
        widths = [column.width for column in shown]
        caption: str | None = table.caption
        for part in _parts_that_fit(widths, places, console.width - 1):
            _show_columns(console, caption, [shown[k] for k in part])
            caption = None


class _TextColumn:
    """A column on a terminal: the lines of its cells, and its width."""

    def __init__(self, column: Column, cells: Sequence[Sequence[str]]) -> None:
        self.head, self.cells = f"{column.group}\n{column.title}".strip(), cells
        self.justify: Any = "right" if column.numeric else "left"
        self.width = max(map(len, chain(self.head.split(), *cells)))
        self.is_empty = bool(cells) and all(list(lines) == [NOTHING] for lines in cells)


def _show_columns(console: "Console", title: str | None, columns: Sequence[_TextColumn]) -> None:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column.head, justify=column.justify, width=column.width, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map("\n".join, row))
    console.print(table)


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
    """Return a `tabular` for the booktabs package, to be put into a table by its reader."""
    columns, rows = _without_commands(table)
    lines = [
        f"% {_one_line(table.caption)}",
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}",
        "\\toprule",
    ]
    if groups := _groups(columns):
        lines.append(_latex_row([_latex_group(group, n) for group, n in groups]))
    lines.append(_latex_row([_latex(column.title) for column in columns]))
    lines.append("\\midrule")
    for row in rows:
        lines.append(_latex_row([_latex(cell.text or cell.verdict) for cell in row]))
        if any(cell.published or cell.note for cell in row):
            lines.append(_latex_row([_latex_below(cell) for cell in row]))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}\n"])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _latex_group(group: str, columns: int) -> str:
    if not group:
        return " & " * (columns - 1)
    return f"\\multicolumn{{{columns}}}{{c}}{{{_latex(group)}}}"


def _latex_below(cell: Cell) -> str:
    text = _latex("; ".join(filter(None, (cell.note, cell.published, cell.verdict))))
    return f"{{\\footnotesize {text}}}" if text else ""


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
    """Return all commands of a table, each below the names that its rows have in common."""
    names_of: dict[str, list[list[str]]] = defaultdict(list)
    named = _naming_columns(table)
    codes = [k for k, column in enumerate(table.shown) if column.code]
    for row in table.cells:
        for k in codes:
            if row[k].text:
                names_of[row[k].text].append([row[place].text for place in named])
    lines = []
    for line, rows in names_of.items():
        common = [texts[0] for texts in zip(*rows, strict=True) if len(set(texts)) == 1]
        if common:
            lines.append(f"# {_one_line(', '.join(common))}")
        lines.append(line)
    if not lines:
        return ""
    text = "\n".join(lines)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}sh\n{text}\n{fence}\n"


def _naming_columns(table: Table) -> list[int]:
    """Return the places of up to two columns that name a row: text without verdicts."""
    names = []
    for k, column in enumerate(table.shown[:2]):
        if column.numeric:
            break
        if not any(row[k].verdict for row in table.cells):
            names.append(k)
    return names


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
    """Return the text of each file by its name. A README says what is on the other pages."""
    head = [f"# {_markdown_line(title)}", "; ".join(f"{value} {name}" for value, name in facts)]
    if not in_pages:
        shown = [text for section in sections for text in _markdown_section(section, "##")]
        return {"report.md": _join(*head, *shown)}
    files, links = {}, []
    for section in map(_without_details, sections):
        if section.name in IN_THE_README:
            head += [TEXTS["by_whom"], *_markdown_section(section, "##")]
        else:
            links.append(f"* [{_markdown_line(section.title)}]({section.name}.md)")
            page = _join(*_markdown_section(section, "#"), TEXTS["back"])
            files[f"{section.name}.md"] = page
    links.append(TEXTS["on_one_page"])
    return {"README.md": _join(*head, "## Pages", "\n".join(links))} | files


def _without_details(section: Section) -> Section:
    blocks = [b for b in section.blocks if not (isinstance(b, Picture) and b.is_detail)]
    return replace(section, blocks=blocks)


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
