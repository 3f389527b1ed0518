"""Formats of tables (terminal, CSV, LaTeX, Markdown) and of whole reports in Markdown: one file, or
a README with a page per section. The HTML page is in `page.py`."""

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, compress, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pac4sac.base.grouping import group_by
from pac4sac.base.text import NOTHING
from pac4sac.report.tables import TEXTS, Answer, Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

IN_THE_README = ("summary",)
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    """Return the values of the columns that have keys, else the cells as shown."""
    head, lines = _csv_head_and_lines(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        writer.writerow([_no_formula(text) for text in line])
    return out.getvalue()


def _csv_head_and_lines(table: Table) -> tuple[list[str], list[list[str]]]:
    if records := table.records:
        lines = [[plain(value) for value in record.values()] for record in records]
        return list(records[0]), lines
    lines = [[_cell_in_one_line(cell) for cell in row] for row in table.cells]
    return [column.head for column in table.shown], lines


def _cell_in_one_line(cell: Cell) -> str:
    if cell.note:
        return f"{cell.text} ({cell.note})"
    return cell.text or cell.verdict


def plain(value: Any) -> str:
    """Return a value as text; an empty string for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        # Ten digits suffice for any result; later digits may differ between machines.
        return f"{value:.10g}"
    return str(value)


def _no_formula(text: str) -> str:
    """Put a quote before text that a spreadsheet would compute as a formula."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    is_number = re.fullmatch(r"[-+](inf|[\d.]+(e[-+]?\d+)?)", text)
    return text if is_number else f"'{text}"


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _without_commands(table: Table) -> tuple[list[Column], list[list[Cell]]]:
    """Return the columns and rows of a table, except its commands."""
    kept = [not column.code for column in table.shown]
    return list(compress(table.shown, kept)), [list(compress(row, kept)) for row in table.cells]


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return each group title with its number of adjacent columns; empty if no column has a
    group."""
    spans = [(group, len(list(members))) for group, members in groupby(c.group for c in columns)]
    return spans if any(group for group, _ in spans) else []


# --- on a terminal


def tables_as_text(tables: Sequence[Table]) -> str:
    """Return tables as the text that `show_tables` prints."""
    from rich.console import Console

    # A notebook's default console would display tables directly; only its width is used.
    console = Console(width=Console().width, force_jupyter=False, color_system=None)
    with console.capture() as captured:
        show_tables(console, tables)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip()


def show_tables(console: "Console", tables: Sequence[Table]) -> None:
    """Print tables, each in as many parts as the width of the console needs."""
    for table in tables:
        _show_table(console, table)


def _show_table(console: "Console", table: Table) -> None:
    columns, rows = _without_commands(table)
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    shown = [_TextColumn(column, of_it) for column, of_it in zip(columns, cells, strict=True)]
    shown[0].width = min(shown[0].width, console.width // 2)
    filled = [column for column in shown if not column.is_empty]
    first, *further = _parts_that_fit(filled, console.width - 1)
    _show_columns(console, table.caption, first)
    for part in further:
        _show_columns(console, None, part)


class _TextColumn:
    """Hold a column of a terminal: the lines of its cells, and its width."""

    def __init__(self, column: Column, cells: Sequence[Cell]) -> None:
        self.head = f"{column.group}\n{column.title}".strip()
        self.cells = [cell.lines for cell in cells]
        self.justify: Any = "right" if column.numeric else "left"
        self.width = max(map(len, chain(self.head.split(), *self.cells)))
        self.is_empty = bool(cells) and all(lines == [NOTHING] for lines in self.cells)


def _show_columns(console: "Console", title: str | None, columns: Sequence[_TextColumn]) -> None:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column.head, justify=column.justify, width=column.width, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map("\n".join, row))
    console.print(table)


def _parts_that_fit(columns: Sequence[_TextColumn], width: int) -> list[list[_TextColumn]]:
    """Split columns into as few parts as fit the width, each as narrow as possible."""
    fewest = len(_parts_within(columns, width))
    narrower = (_parts_within(columns, w) for w in range(width // 2, width + 1))
    return next(parts for parts in narrower if len(parts) == fewest)


def _parts_within(columns: Sequence[_TextColumn], width: int) -> list[list[_TextColumn]]:
    """Split columns into parts of at most this width; the first column names the row and is in
    each."""
    first, *others = columns
    parts = [[first]]
    for column in others:
        is_full = sum(shown.width + 3 for shown in [*parts[-1], column]) > width
        if is_full and len(parts[-1]) > 1:
            parts.append([first])
        parts[-1].append(column)
    return parts


# --- LaTeX


def to_latex(table: Table) -> str:
    """Return a `tabular` for the booktabs package, without a `table` around it."""
    columns, rows = _without_commands(table)
    alignment = "".join("r" if column.numeric else "l" for column in columns)
    lines = [
        f"% {_one_line(table.caption)}",
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
    ]
    if groups := _groups(columns):
        lines.append(_latex_row([_latex_group(group, n) for group, n in groups]))
    lines.append(_latex_row([_latex(column.title) for column in columns]))
    lines.append("\\midrule")
    for row in rows:
        lines += _latex_lines(row)
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}\n"])


def _latex_lines(row: Sequence[Cell]) -> list[str]:
    """Return the line of a row, followed by a line of notes and published values if it has any."""
    line = _latex_row([_latex(cell.text or cell.verdict) for cell in row])
    if not any(cell.published or cell.note for cell in row):
        return [line]
    return [line, _latex_row([_latex_below(cell) for cell in row])]


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
    """Return a table in Markdown. Its commands follow below, because they would make it too
    wide."""
    columns, rows = _without_commands(table)
    heads = _markdown_row([_markdown(column.head) for column in columns])
    rule = "|" + "|".join("---:" if column.numeric else "---" for column in columns) + "|"
    lines = [_markdown_row([_markdown_cell(cell) for cell in row]) for row in rows]
    body = "\n".join([heads, rule, *lines]) + "\n" + _commands(table)
    if table.folded:
        summary = html.escape(table.caption, quote=False)
        return f"<details><summary>{summary}</summary>\n\n{body}\n</details>\n"
    return f"**{_markdown(table.caption)}**\n\n{body}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _commands(table: Table) -> str:
    """Return all commands of a table, each below the names that identify its rows."""
    named_commands = _named_commands(table)
    if not named_commands:
        return ""
    lines = []
    for command, uses in group_by(named_commands, key=itemgetter(0)).items():
        if common := _in_common([names for _, names in uses]):
            lines.append(f"# {_one_line(', '.join(common))}")
        lines.append(command)
    return _code_block("\n".join(lines))


def _named_commands(table: Table) -> list[tuple[str, list[str]]]:
    """Return the commands of all rows, each with the names of its row."""
    naming = _naming_columns(table)
    found = []
    for row in table.cells:
        names = [row[k].text for k in naming]
        for column, cell in zip(table.shown, row, strict=True):
            if column.code and cell.text:
                found.append((cell.text, names))
    return found


def _in_common(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the texts that have the same value in all rows."""
    return [texts[0] for texts in zip(*rows, strict=True) if len(set(texts)) == 1]


def _code_block(text: str) -> str:
    """Return shell code between fences longer than any fence inside it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}sh\n{text}\n{fence}\n"


def _naming_columns(table: Table) -> list[int]:
    """Return the indices of up to two columns that name a row: text without verdicts."""
    names = []
    for k, column in enumerate(table.shown[:2]):
        if column.numeric:
            break
        if not any(row[k].verdict for row in table.cells):
            names.append(k)
    return names


def _markdown_cell(cell: Cell) -> str:
    parts = [_markdown(part) for part in (cell.text, cell.note, cell.published) if part]
    if cell.verdict:
        parts.append(f"*{cell.verdict}*")
    return "<br>".join(parts)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>]|\](?=[(\[:]))", r"\\\1", _one_line(text))


def _markdown_line(text: str) -> str:
    """Return a text, which may contain code, as a line of Markdown.

    Names in it are escaped, so they start no list, HTML tag or link.
    """
    code_or_not = re.split(r"(`[^`]*`)", _one_line(text))
    for k in range(0, len(code_or_not), 2):  # not code
        code_or_not[k] = re.sub(r"<(?=[\w/!?])|\](?=[(\[:])", r"\\\g<0>", code_or_not[k])
    return "".join(code_or_not)


def markdown_files(
    title: str, facts: Facts, sections: Sequence[Section], in_pages: bool
) -> dict[str, str]:
    """Return the text of each file by its name: one file, or a README and a page per section."""
    head = [f"# {_markdown_line(title)}", "; ".join(f"{value} {name}" for value, name in facts)]
    if in_pages:
        return _readme_and_pages(head, [_without_details(section) for section in sections])
    shown = [text for section in sections for text in _markdown_section(section, "##")]
    return {"report.md": _join(*head, *shown)}


def _readme_and_pages(head: Sequence[str], sections: Sequence[Section]) -> dict[str, str]:
    readme, files, links = list(head), {}, []
    for section in sections:
        if section.name in IN_THE_README:
            readme += [TEXTS["by_whom"], *_markdown_section(section, "##")]
        else:
            links.append(f"* [{_markdown_line(section.title)}]({section.name}.md)")
            page = _join(*_markdown_section(section, "#"), TEXTS["back"])
            files[f"{section.name}.md"] = page
    links.append(TEXTS["on_one_page"])
    return {"README.md": _join(*readme, "## Pages", "\n".join(links))} | files


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
    if isinstance(block, str):
        return block
    return "\n".join(map(_markdown_item, block))


def _markdown_item(item: str | Answer) -> str:
    if isinstance(item, str):
        return f"* {_markdown_line(item)}"
    verdict = f"**{item.verdict.capitalize()}.** " if item.verdict else ""
    return f"* {_markdown_line(item.question)}<br>{verdict}{_markdown_line(item.text)}"


def _join(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
