"""The HTML page of a report: one file that loads nothing from a network. Answers come first; other
sections are folded. On a narrow screen, tables fold columns into the details of a row
(`report.js`)."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from pac4sac.report.formats import Facts, plain
from pac4sac.report.style import series
from pac4sac.report.tables import Answer, Block, Cell, Column, Picture, Section, Table

HERE = Path(__file__).parent
PLOTS = HERE / "uplot"  # the library that draws curves, with its licence


def html_page(
    title: str,
    facts: Facts,
    sections: Sequence[Section],
    drawings: Mapping[str, str],
    curves: Mapping[str, Any],
) -> str:
    """Return the page, with the first section unfolded. `drawings` maps names of figures to SVG."""
    summary, *others = sections
    known = {section.name for section in others}
    answers, *evidence = [_html_block(block, drawings, known) for block in summary.blocks]
    folded = "\n".join(_html_section(section, drawings, known) for section in others)
    licence, plots = _text(PLOTS / "LICENSE"), _text(PLOTS / "uPlot.iife.min.js")
    return Template(_text(HERE / "template.html")).substitute(
        title=_html(title),
        facts="; ".join(f"<b>{_html(value)}</b> {_html(name)}" for value, name in facts),
        style=_text(PLOTS / "uPlot.min.css") + _text(HERE / "report.css"),
        series=series(),
        script=f"/*\n{licence}*/\n{plots}{_text(HERE / 'report.js')}",
        answers=answers,
        evidence="\n".join(evidence),
        sections=folded,
        # Escaped so that no name in it can close the script element.
        curves=json.dumps(curves, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _html_section(section: Section, drawings: Mapping[str, str], known: set[str]) -> str:
    blocks = "\n".join(_html_block(block, drawings, known) for block in section.blocks)
    head = f"<summary><h2>{_html(section.title)}</h2></summary>"
    return f'<section id="{section.name}"><details>{head}\n{blocks}\n</details></section>'


def _html_block(block: Block, drawings: Mapping[str, str], known: set[str]) -> str:
    if isinstance(block, Table):
        return _html_table(block)
    if isinstance(block, Picture):
        drawing = f'<div class="scroll">{drawings[block.name]}</div>'
        caption = f"<figcaption>{_html(block.caption)}</figcaption>"
        return f'<figure id="figure-{html.escape(block.name)}">{drawing}{caption}</figure>'
    if isinstance(block, str):
        return f"<p>{_html(block)}</p>"
    kind = ' class="answers"' if any(isinstance(item, Answer) for item in block) else ""
    items = "".join(f"<li>{_html_item(item, known)}</li>" for item in block)
    return f"<ul{kind}>{items}</ul>"


def _html_item(item: str | Answer, known: set[str]) -> str:
    if isinstance(item, str):
        return _html(item)
    question = _html(item.question)
    if item.section in known:
        question = f'<a href="#{item.section}">{question}</a>'
    return f"<span>{question}</span> {_pill(item.verdict)} {_html(item.text)}"


def _html_table(table: Table) -> str:
    heads = "".join(map(_html_head, table.shown))
    rows = "\n".join(
        f"<tr>{''.join(map(_html_cell, row, table.shown))}</tr>" for row in table.cells
    )
    caption = _html(table.caption)
    whole = (
        f'<div class="scroll"><table id="table-{html.escape(table.name)}">'
        f"<caption>{caption}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"<details><summary>{caption}</summary>{whole}</details>" if table.folded else whole


def _html_head(column: Column) -> str:
    group = f"<small>{_html(column.group)}</small>" if column.group else ""
    return (
        f'<th scope="col" class="{_kind(column)}" aria-sort="none">'
        f"<button>{group}{_html(column.title)}</button></th>"
    )


def _html_cell(cell: Cell, column: Column) -> str:
    hint = cell.hint or (cell.text if cell.name else "")
    title = f' title="{html.escape(hint)}"' if hint else ""
    text = _html(cell.name or cell.text)
    if column.code:
        text = f"<code>{html.escape(cell.text)}</code>"
    for below in (cell.note, cell.published):
        if below:
            text += f"<small>{_html(below)}</small>"
    value = html.escape(plain(cell.value))
    attributes = f'class="{_kind(column)}" data-value="{value}"{title}'
    return f"<td {attributes}>{text}{_pill(cell.verdict)}</td>"


def _pill(verdict: str) -> str:
    """Return a verdict as a coloured label; empty without a verdict."""
    if not verdict:
        return ""
    return f'<span class="verdict {verdict.replace(" ", "-")}">{_html(verdict)}</span>'


def _kind(column: Column) -> str:
    return ("n" if column.numeric else "t") + (" folded" if column.folded else "")


def _html(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
