"""A report as one page that needs nothing but a browser."""

import html
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from string import Template

from pac4sac.report.figures import inline_svg
from pac4sac.report.tables import Block, Cell, Column, Picture, Section, Table

TEMPLATE = Path(__file__).parent / "template.html"


def page(title: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section], drawings: Mapping[str, str]) -> str:
    """`drawings` are the figures as SVG, by name."""
    contents = "".join(f'<a href="#{s.name}">{_text(s.title)}</a>' for s in sections)
    cards = "".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for value, name in facts)
    body = "\n".join(_section(section, drawings) for section in sections)
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=_text(title), contents=contents, cards=cards, body=body)


def _section(section: Section, drawings: Mapping[str, str]) -> str:
    blocks = "\n".join(_block(block, drawings) for block in section.blocks)
    return f'<section id="{section.name}"><h2>{_text(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, drawings: Mapping[str, str]) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        drawing = inline_svg(drawings[block.name], html.escape(block.caption, quote=True))
        whole = f'<div class="scroll">{drawing}</div><figcaption>{_text(block.caption)}</figcaption>'
        return f'<figure id="figure-{html.escape(block.name)}">{whole}</figure>'
    if isinstance(block, list):
        return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in block) + "</ul>"
    return f"<p>{_text(block)}</p>"


def _table(table: Table) -> str:
    spans = [(group, len(list(members))) for group, members in groupby(c.group for c in table.shown)]
    heads = "".join(
        f'<th scope="col" class="{_kind(c)}" aria-sort="none"><button>{_text(c.title)}</button></th>'
        for c in table.shown
    )
    over = "".join(f'<th colspan="{n}" class="group">{_text(group)}</th>' for group, n in spans)
    over = f"<tr>{over}</tr>" if any(group for group, _ in spans) else ""
    rows = "\n".join("<tr>" + "".join(map(_cell, row, table.shown)) + "</tr>" for row in table.cells)
    whole = (
        f'<div class="scroll"><table id="table-{html.escape(table.name)}"><caption>{_text(table.caption)}</caption>'
        f"<thead>{over}<tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"<details><summary>{_text(table.caption)}</summary>{whole}</details>" if table.folded else whole


def _cell(cell: Cell, column: Column) -> str:
    value = "" if cell.value is None else f"{cell.value:.10g}" if isinstance(cell.value, float) else str(cell.value)
    hint = f' title="{html.escape(cell.hint, quote=True)}"' if cell.hint else ""
    text = f"<code>{html.escape(cell.text)}</code>" if column.code else _text(cell.text)
    text += "".join(f"<small>{_text(below)}</small>" for below in (cell.note, cell.published) if below)
    if cell.verdict:
        text += f'<span class="verdict {cell.verdict.replace(" ", "-")}">{_text(cell.verdict)}</span>'
    return f'<td class="{_kind(column)}" data-value="{html.escape(value, quote=True)}"{hint}>{text}</td>'


def _kind(column: Column) -> str:
    return "n" if column.numeric else "t"


def _text(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
