"""A report on the runs below some folders: HTML, Markdown, LaTeX, CSV, SVG and PDF.

It is a function of the folders: the same folders give the same bytes, whatever their order and
whenever it is written."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pac4sac.base.files import as_bytes
from pac4sac.paper.answers import summary_section
from pac4sac.paper.claims import claims_section, judge_claims
from pac4sac.paper.cost import cost_section
from pac4sac.paper.families import PaperContext, context_of, coverage_baseline
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, TEXTS
from pac4sac.paper.published import beside_published, published_section
from pac4sac.paper.study_sections import chosen_section, study_sections
from pac4sac.paper.table_sections import shooting_section, table_section
from pac4sac.paper.verdicts import MARGIN_TEXT
from pac4sac.report import bias_and_coverage, figures, uncertainty
from pac4sac.report import sections as general
from pac4sac.report.curves import curves_of
from pac4sac.report.folder import check_folder, write_files
from pac4sac.report.formats import markdown_files, to_csv, to_latex
from pac4sac.report.page import html_page
from pac4sac.report.tables import Picture, Section, Table
from pac4sac.runs.collection import CHOOSING, collect

MARK = "report.html"


@dataclass(frozen=True)
class WrittenReport:
    page: Path
    context: PaperContext
    main_tables: Sequence[Table]


def read_context(paths: Sequence[Path]) -> PaperContext:
    return context_of(collect([Path(path) for path in paths]))


def write_report(paths: Sequence[Path], out: Path, *, in_pages: bool = False) -> WrittenReport:
    """Write the report into the folder `out`, over an earlier one if there is. `in_pages` is for a
    repository: Markdown in several files, and neither LaTeX nor PDF."""
    context, out = read_context(paths), Path(out)
    check_folder(out, MARK)
    for sentence in general.left_out(context.collection):
        warnings.warn(sentence, stacklevel=2)
    sections = compose(context)
    drawings: dict[str, str] = {}
    files: dict[str, str | bytes] = {}
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table):
            files[f"tables/{block.name}.csv"] = to_csv(block)
            if not in_pages:
                files[f"tables/{block.name}.tex"] = to_latex(block)
        elif isinstance(block, Picture):
            figure = block.draw()
            svg = figures.to_svg(figure, block.name)
            drawings[block.name] = figures.inline_svg(svg, block.caption)
            files[f"figures/{block.name}.svg"] = figures.opaque(svg)
            if not in_pages:
                files[f"figures/{block.name}.pdf"] = figures.to_pdf(figure)
    titles = list(dict.fromkeys(study.title for study in context.collection.studies))
    tasks = "Report on " + ", ".join(context.task_names) if context.variants else "Report"
    about = (titles[0] if len(titles) == 1 else tasks, general.facts(context), sections)
    files |= {
        **markdown_files(*about, in_pages),
        MARK: html_page(*about, drawings, curves_of(context, out)),
    }
    write_files(
        out,
        {name: as_bytes(text) if isinstance(text, str) else text for name, text in files.items()},
    )
    return WrittenReport(out / MARK, context, main_tables(sections))


def compose(context: PaperContext) -> list[Section]:
    """Answers first; what they rest on follows. Pictures are drawn when they are written."""
    collection, of_paper = context.collection, context.is_about_paper
    # Off the paper's tasks a label such as sac may stand for other settings.
    comparable = [
        title for title in context.variants if not of_paper or _is_of_paper(context, title)
    ]
    judged, across = judge_claims(context), general.across_tasks_section(context, comparable)
    tables = [table_section(table) for table in context.rows.tables if table.variants]
    published = published_section(beside_published(context))
    beside = {section.name: str(section.blocks[0]) for section in (*tables, published) if section}
    figure = (
        next((block for block in across.blocks if isinstance(block, Picture)), None)
        if across
        else None
    )
    sections: list[Section | None] = [
        summary_section(context, judged, beside, figure),
        claims_section(context, judged),
        *tables,
        published,
        shooting_section(context.rows.shooting),
        *(study_sections(context) if of_paper else []),
        replace(across, blocks=[block for block in across.blocks if block is not figure])
        if across
        else None,
        *(
            general.task_section(context, title)
            for title in context.variants
            if context.results(title)
        ),
        bias_and_coverage.bias_section(context),
        uncertainty.uncertainty_section(context),
        bias_and_coverage.coverage_section(context, partial(coverage_baseline, collection.studies)),
        general.threshold_section(context, TEXTS["threshold"] if of_paper else ""),
        *(chosen_section(context, kind) for kind in CHOOSING),
        cost_section(collection.costs, context.rows.table_1),
        general.runs_section(context),
        general.method_section(
            [text.format(seeds=SEEDS, margin=MARGIN_TEXT) for text in TEXTS["method"] if of_paper]
        ),
        general.provenance_section(context),
    ]
    return [section for section in sections if section is not None]


def _is_of_paper(context: PaperContext, title: str) -> bool:
    return context.variants[title][0].task.name in PAPER_TASKS


def main_tables(sections: Sequence[Section]) -> list[Table]:
    """The first table of the paper's sections, of published returns, of every task, and of
    costs."""
    wanted = [
        section
        for section in sections
        if section.name.startswith(("table-", "published", "task-", "cost"))
    ]
    return [
        next(block for block in section.blocks if isinstance(block, Table)) for section in wanted
    ]
