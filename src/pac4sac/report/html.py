"""A report as one page that needs nothing but a browser."""

import html
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from string import Template

from pac4sac.report.figures import inline_svg
from pac4sac.report.tables import Cell, Listing, Picture, Section, Table

TEMPLATE = Path(__file__).parent / "template.html"


def page(title: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section], drawings: Mapping[str, str]) -> str:
    """`drawings` are the figures as SVG, by name."""
    contents = "".join(f'<a href="#{s.name}">{_text(s.title)}</a>' for s in sections)
    cards = "".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for value, name in facts)
    body = "\n".join(_section(section, drawings) for section in sections)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=_text(title), contents=contents, cards=cards, body=body
    )


def _section(section: Section, drawings: Mapping[str, str]) -> str:
    blocks = []
    for block in section.blocks:
        if isinstance(block, Table):
            blocks.append(_table(block))
        elif isinstance(block, Picture):
            caption = html.escape(block.caption, quote=True)
            drawing = inline_svg(drawings[block.name], caption)
            name = html.escape(block.name)
            blocks.append(f'<figure id="figure-{name}"><div class="scroll">{drawing}</div>'
                          f"<figcaption>{_text(block.caption)}</figcaption></figure>")  # fmt: skip
        elif isinstance(block, Listing):
            blocks.append("<ul>" + "".join(f"<li>{_text(item)}</li>" for item in block.items) + "</ul>")
        else:
            blocks.append(f"<p>{_text(block)}</p>")
    return f'<section id="{section.name}"><h2>{_text(section.title)}</h2>\n' + "\n".join(blocks) + "\n</section>"


def _table(table: Table) -> str:
    spans = [(group, len(list(members))) for group, members in groupby(c.group for c in table.columns)]
    heads = "".join(
        f'<th scope="col" class="{"n" if c.numeric else "t"}" aria-sort="none"><button>{_text(c.title)}</button></th>'
        for c in table.columns
    )
    over = ""
    if any(group for group, _ in spans):
        over = "<tr>" + "".join(f'<th colspan="{n}" class="group">{_text(group)}</th>' for group, n in spans) + "</tr>"
    rows = "\n".join(
        "<tr>" + "".join(_cell(cell, c.numeric) for cell, c in zip(row, table.columns, strict=True)) + "</tr>"
        for row in table.rows
    )
    whole = (
        f'<div class="scroll"><table id="table-{html.escape(table.name)}"><caption>{_text(table.caption)}</caption>'
        f"<thead>{over}<tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"<details><summary>{_text(table.caption)}</summary>{whole}</details>" if table.folded else whole


def _cell(cell: Cell, numeric: bool) -> str:
    value = "" if cell.value is None else f"{cell.value:.10g}" if isinstance(cell.value, float) else str(cell.value)
    hint = f' title="{html.escape(cell.hint, quote=True)}"' if cell.hint else ""
    text = f"<code>{html.escape(cell.text)}</code>" if cell.code else _text(cell.text)
    if cell.note:
        text += f"<small>{_text(cell.note)}</small>"
    if cell.paper:
        text += f"<small>paper {_text(cell.paper)}</small>"
    if cell.verdict:
        kind = cell.verdict.replace(" ", "-")
        text += f'<span class="verdict {kind}">{_text(cell.verdict)}</span>'
    return f'<td class="{"n" if numeric else "t"}" data-value="{html.escape(value, quote=True)}"{hint}>{text}</td>'


def _text(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
