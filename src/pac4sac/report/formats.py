"""A table for a terminal, as CSV, LaTeX, Markdown and HTML, and a report: as one page that needs nothing but a browser,
and as Markdown, in one file, or, as code hosts show it best, as a README with a page for each section."""

import csv
import html
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, compress, groupby
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from pac4sac.base.text import NOTHING
from pac4sac.report.tables import TEXTS, Block, Cell, Column, Picture, Section, Table

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATE = Path(__file__).parent / "template.html"
IN_THE_README = ("summary", "claims")
Facts = Sequence[tuple[str, str]]


def to_csv(table: Table) -> str:
    records, out = table.records, io.StringIO()
    lines: list[list[str]] = [[_plain(value) for value in record.values()] for record in records]
    if not records:
        lines = [[f"{c.text} ({c.note})" if c.note else c.text for c in row] for row in table.cells]
    head = list(records[0]) if records else [column.head for column in table.shown]
    csv.writer(out, lineterminator="\n").writerows([head, *([_no_formula(text) for text in line] for line in lines)])
    return out.getvalue()


def _plain(value: Any) -> str:
    # Ten digits are more than any result has, and fewer than two machines may disagree in.
    return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would compute gets the mark by which it takes it for text."""
    is_number = re.fullmatch(r"[-+](inf|[\d.]+(e[-+]?\d+)?)", text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else text


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _without_commands(table: Table) -> tuple[list[Column], list[list[Cell]]]:
    """Its columns and rows."""
    kept = [not column.code for column in table.shown]
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
        columns, rows = _without_commands(table)
        lines = [[row[k].lines for row in rows] for k in range(len(columns))]  # by column
        heads = [f"{column.group}\n{column.title}".strip() for column in columns]
        widths = [max(map(len, chain(head.split(), *texts))) for head, texts in zip(heads, lines, strict=True)]
        widths[0] = min(widths[0], console.width // 2)
        places = [k for k, texts in enumerate(lines) if not rows or any(text != [NOTHING] for text in texts)]
        for number, part in enumerate(_parts_that_fit(widths, places, console.width - 1)):
            rich_table = RichTable(title=None if number else table.caption, title_justify="left", box=box.SIMPLE)
            for k in part:
                justify: Any = "right" if columns[k].numeric else "left"
                rich_table.add_column(heads[k], justify=justify, width=widths[k], overflow="fold")
            for row in zip(*(lines[k] for k in part), strict=True):
                rich_table.add_row(*map("\n".join, row))
            console.print(rich_table)


def _parts_that_fit(widths: Sequence[int], places: Sequence[int], width: int) -> list[list[int]]:
    """The columns at these places, as far as a console has room for them side by side, then further ones behind the
    first, which names a row. As few parts as can be, and as narrow as that allows."""

    def parts_of(width: int) -> list[list[int]]:
        first, *others = places
        parts = [[first]]
        for place in others:
            if len(parts[-1]) > 1 and sum(widths[k] + 3 for k in [*parts[-1], place]) > width:
                parts.append([first])
            parts[-1].append(place)
        return parts

    fewest = len(parts_of(width))
    return next(parts for parts in map(parts_of, range(width // 2, width + 1)) if len(parts) == fewest)


# --- LaTeX


def to_latex(table: Table) -> str:
    """A `tabular` for the booktabs package, to be put into a table by the one who inputs it."""
    columns, rows = _without_commands(table)
    groups = [
        f"\\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1) for group, n in _groups(columns)
    ]
    heads = [_latex(column.title) for column in columns]
    body = []
    for row in rows:
        body.append([_latex(cell.text) for cell in row])
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
    columns, rows = _without_commands(table)
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
    names = next((k for k, column in enumerate(table.shown[:2]) if column.numeric), 2)
    for row in table.cells:
        for cell, column in zip(row, table.shown, strict=True):
            if column.code and cell.text:
                rows_of[cell.text].append([c.text for c in row[:names]])
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
    return "\n".join(f"* {_markdown_line(item)}" for item in block) if isinstance(block, list) else block


def _join(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


# --- HTML


def html_page(title: str, facts: Facts, sections: Sequence[Section], drawings: Mapping[str, str]) -> str:
    """`drawings` are the figures as SVG for a page, by name."""
    contents = "".join(f'<a href="#{s.name}">{_html(s.title)}</a>' for s in sections)
    cards = "".join(f"<div><b>{_html(value)}</b><span>{_html(name)}</span></div>" for value, name in facts)
    blocks = [(s, "\n".join(_html_block(block, drawings) for block in s.blocks)) for s in sections]
    body = "\n".join(f'<section id="{s.name}"><h2>{_html(s.title)}</h2>\n{text}\n</section>' for s, text in blocks)
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=_html(title), contents=contents, cards=cards, body=body)


def _html_block(block: Block, drawings: Mapping[str, str]) -> str:
    if isinstance(block, Table):
        return _html_table(block)
    if isinstance(block, Picture):
        whole = f'<div class="scroll">{drawings[block.name]}</div><figcaption>{_html(block.caption)}</figcaption>'
        return f'<figure id="figure-{html.escape(block.name)}">{whole}</figure>'
    if isinstance(block, list):
        return "<ul>" + "".join(f"<li>{_html(item)}</li>" for item in block) + "</ul>"
    return f"<p>{_html(block)}</p>"


def _html_table(table: Table) -> str:
    heads = [
        f'<th scope="col" class="{_kind(c)}" aria-sort="none"><button>{_html(c.title)}</button></th>'
        for c in table.shown
    ]
    groups = [f'<th colspan="{n}" class="group">{_html(group)}</th>' for group, n in _groups(table.shown)]
    head = "".join(f"<tr>{''.join(cells)}</tr>" for cells in (groups, heads) if cells)
    rows = "\n".join(f"<tr>{''.join(map(_html_cell, row, table.shown))}</tr>" for row in table.cells)
    caption = _html(table.caption)
    whole = (
        f'<div class="scroll"><table id="table-{html.escape(table.name)}"><caption>{caption}</caption>'
        f"<thead>{head}</thead><tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"<details><summary>{caption}</summary>{whole}</details>" if table.folded else whole


def _html_cell(cell: Cell, column: Column) -> str:
    hint = f' title="{html.escape(cell.hint)}"' if cell.hint else ""
    text = f"<code>{html.escape(cell.text)}</code>" if column.code else _html(cell.text)
    text += "".join(f"<small>{_html(below)}</small>" for below in (cell.note, cell.published) if below)
    if cell.verdict:
        text += f'<span class="verdict {cell.verdict.replace(" ", "-")}">{_html(cell.verdict)}</span>'
    return f'<td class="{_kind(column)}" data-value="{html.escape(_plain(cell.value))}"{hint}>{text}</td>'


def _kind(column: Column) -> str:
    return "n" if column.numeric else "t"


def _html(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
